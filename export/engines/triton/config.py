"""The `config.pbtxt` of each Triton model of a bundle."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from keras_transformer.export.bundle.file_names import file_names
from keras_transformer.export.data.manifest import Manifest
from keras_transformer.export.engines.triton.check import SequenceProof, SignatureProof
from keras_transformer.export.engines.triton.text_proto import Enum, text_proto
from keras_transformer.export.errors import ExportError
from keras_transformer.export.onnx.format import ONNX
from keras_transformer.export.onnx.runtime import onnx_session
from keras_transformer.export.runtime.generation_record import generation_of
from keras_transformer.export.serving.batching import Batching, why_alone
from keras_transformer.export.verification.comparison import Limit
from keras_transformer.export.verification.verify import kept_limit

if TYPE_CHECKING:
    from keras_transformer.export.data.array_spec import ArraySpec
    from keras_transformer.utils.types import Path


_FORMAT = ONNX.name
_SEQUENCE = "decode"
_OWN = ("token_ids", "cache_index")  # Inputs of each request; the others are states.
_UNBOUNDED = 512
_IDLE_MICROSECONDS = 60_000_000
_TYPES = {
    "bool": "TYPE_BOOL",
    "float16": "TYPE_FP16",
    "float32": "TYPE_FP32",
    "float64": "TYPE_FP64",
    "bfloat16": "TYPE_BF16",
    "string": "TYPE_STRING",
    **{f"{kind}{bits}": f"TYPE_{kind.upper()}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)},
}


@dataclasses.dataclass
class TritonModel:
    """One model of a repository.

    Args:
        name: str.
        source: path of the ONNX file.
        config: text of its `config.pbtxt`.
        prove: function of the path of the copied file and the bundle's probes.
    """

    name: str
    source: pathlib.Path
    config: str
    prove: Callable


def triton_models(
    bundle: Path, manifest: Manifest, name: str, batching: Batching, max_length: int | None
) -> list[TritonModel]:
    """Returns the Triton models of a bundle.

    Args:
        bundle: path of the bundle.
        manifest: its manifest.
        name: str.
        batching: `Batching`.
        max_length: int or None, as for `write_triton`.

    Returns:
        List of `TritonModel`.

    Raises:
        ExportError: `max_length` is too large or for another kind of model, or Triton supports no signature.
    """
    limit = kept_limit(manifest, _FORMAT)
    if _is_sequence(manifest):
        length = _length(generation_of(manifest)["max_length"], max_length)
        source = manifest.path(bundle, _FORMAT, _SEQUENCE)
        file_outputs = _file_outputs(source, manifest, _SEQUENCE)
        signature = manifest.signature(_SEQUENCE)
        return [_sequence_model(source, signature, file_outputs, (name, batching, length, limit))]
    if max_length is not None:
        raise ExportError("max_length is for a language model with a server-side cache")
    keys = [
        key for key in manifest.artifact(_FORMAT).signatures if key != "decode_token" and _has_no_scalar(manifest, key)
    ]
    if not keys:
        raise ExportError("every signature of the bundle has a scalar input or output, which Triton does not support")
    models = []
    for key in keys:
        source = manifest.path(bundle, _FORMAT, key)
        signature = manifest.signature(key)
        file_outputs = _file_outputs(source, manifest, key)
        full = name if len(keys) == 1 else f"{name}_{key}"
        proof = SignatureProof(key, {output: file_name for output, (file_name, _) in file_outputs.items()}, limit)
        models.append(TritonModel(full, source, _config(full, _stateless(signature, file_outputs, batching)), proof))
    return models


def _sequence_model(
    source: pathlib.Path,
    signature: tuple[Sequence[ArraySpec], Sequence[ArraySpec]],
    file_outputs: dict[str, Any],
    options: tuple[str, Batching, int, Limit],
) -> TritonModel:
    name, batching, length, limit = options
    states = _states(signature[0], file_outputs, length)
    types = {spec.name: spec.dtype for spec in signature[0]}
    proof = SequenceProof(file_outputs["logits"][0], states, types, limit)
    return TritonModel(name, source, _config(name, _sequence(signature, file_outputs, states, batching)), proof)


def _config(name: str, fields: dict[str, Any]) -> str:
    return text_proto({"name": name, "backend": "onnxruntime", **fields})


def _has_no_scalar(manifest: Manifest, key: str) -> bool:
    inputs, outputs = manifest.signature(key)
    return all(spec.axes for spec in (*inputs, *outputs))


def _is_sequence(manifest: Manifest) -> bool:
    """Whether a bundle is a decoder with one file for prompts and tokens, whose only state is its cache."""
    record = manifest.generation
    return record is not None and not record["is_encoder_decoder"] and _SEQUENCE in manifest.signatures


def _length(most: int | None, max_length: int | None) -> int:
    if max_length is None:
        return most or _UNBOUNDED
    if isinstance(max_length, bool) or not isinstance(max_length, int) or max_length < 2:
        raise ExportError(f"max_length must be an int of at least 2, not {max_length!r}")
    if most is not None and max_length > most:
        raise ExportError(f"max_length is {max_length}; the model is limited to {most} tokens")
    return max_length


def _file_outputs(path: pathlib.Path, manifest: Manifest, key: str) -> dict[str, Any]:
    """Name and shape in the file of each output of a signature."""
    shapes = {each.name: each.shape for each in onnx_session(str(path), 1).get_outputs()}
    return {name: (label, shapes[label]) for name, label in file_names(manifest, _FORMAT, key).outputs.items()}


def _stateless(
    signature: tuple[Sequence[ArraySpec], Sequence[ArraySpec]], file_outputs: dict[str, Any], batching: Batching
) -> dict[str, Any]:
    """The fields of a stateless model."""
    inputs, outputs = signature
    together = why_alone(inputs, outputs) is None
    fields = {
        "max_batch_size": batching.max_batch_size if together else 0,
        "input": [_tensor(spec, spec.name, spec.shape, together) for spec in inputs],
        "output": [_tensor(spec, file_outputs[spec.name][0], file_outputs[spec.name][1], together) for spec in outputs],
    }
    if together:
        fields["dynamic_batching"] = {
            "preferred_batch_size": [batching.max_batch_size],
            "max_queue_delay_microseconds": batching.wait_microseconds,
            "default_queue_policy": {"max_queue_size": batching.max_waiting},
        }
    return fields


def _states(inputs: Sequence[ArraySpec], file_outputs: dict[str, Any], length: int) -> dict[str, Any]:
    """The states that the server keeps for a text: dict of input to output, shape and the axis of tokens."""
    states = {}
    for spec in inputs:
        if spec.name not in _OWN:
            sizes = [length if axis else size for axis, size in zip(spec.axes[1:], spec.shape[1:], strict=True)]
            axis = next((index for index, each in enumerate(spec.axes[1:]) if each), None)
            states[spec.name] = file_outputs[spec.name][0], sizes, axis
    return states


def _sequence(
    signature: tuple[Sequence[ArraySpec], Sequence[ArraySpec]],
    file_outputs: dict[str, Any],
    states: dict[str, Any],
    batching: Batching,
) -> dict[str, Any]:
    """The fields of a model with a server-side cache."""
    inputs, outputs = signature
    types = {spec.name: Enum(_TYPES[spec.dtype]) for spec in inputs}
    logits = next(spec for spec in outputs if spec.name == "logits")
    return {
        "max_batch_size": batching.max_batch_size,
        "input": [_tensor(spec, spec.name, spec.shape, True) for spec in inputs if spec.name in _OWN],
        "output": [_tensor(logits, file_outputs["logits"][0], file_outputs["logits"][1], True)],
        "sequence_batching": {
            "max_sequence_idle_microseconds": _IDLE_MICROSECONDS,
            "oldest": {
                "max_candidate_sequences": max(batching.max_waiting, batching.max_batch_size),
                "preferred_batch_size": [batching.max_batch_size],
                "max_queue_delay_microseconds": batching.wait_microseconds,
            },
            "state": [_state(name, output, types[name], dims) for name, (output, dims, _) in states.items()],
        },
    }


def _state(name: str, output: str, kind: Enum, dims: Sequence[int]) -> dict[str, Any]:
    """A tensor of the cache, initialized with zeros."""
    initial = {"data_type": kind, "dims": dims, "zero_data": True, "name": "zeros"}
    return {"input_name": name, "output_name": output, "data_type": kind, "dims": dims, "initial_state": initial}


def _tensor(spec: ArraySpec, name: str, shape: Sequence[int | str | None], is_batched: bool) -> dict[str, Any]:
    """An input or output, without its batch axis."""
    dims = [size if isinstance(size, int) else known or -1 for size, known in zip(shape, spec.shape, strict=True)]
    dims = [-1 if size is None else size for size in dims]
    fields = {"name": name, "data_type": Enum(_TYPES[spec.dtype])}
    if is_batched and len(dims) == 1:
        return {**fields, "dims": [1], "reshape": {}}  # One value for each example; Triton needs an axis.
    return {**fields, "dims": dims[1:] if is_batched else dims}
