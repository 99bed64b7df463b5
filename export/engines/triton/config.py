"""What Triton Inference Server is told about the ONNX files of a bundle: one `config.pbtxt` for each model."""

import dataclasses
import pathlib
from collections.abc import Callable

from keras_transformer.export.bundle.manifest import artifact_path, signature_specs
from keras_transformer.export.engines.triton.check import SequenceProof, SignatureProof
from keras_transformer.export.engines.triton.text_proto import Enum, text_proto
from keras_transformer.export.errors import ExportError
from keras_transformer.export.onnx.format import ONNX
from keras_transformer.export.onnx.runtime import onnx_session
from keras_transformer.export.serving.batching import why_alone

_FORMAT = ONNX.name
_SEQUENCE = "decode"
_OWN = ("token_ids", "cache_index")  # What a client sends with each request of a text.
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


def triton_models(bundle, manifest, name, batching, max_length):
    """The models that a bundle becomes.

    Args:
        bundle: path of the bundle.
        manifest: its manifest.
        name: str.
        batching: `Batching`.
        max_length: int or None, as for `write_triton`.

    Returns:
        List of `TritonModel`.

    Raises:
        ExportError: `max_length` for another kind of model, or more than the model holds; nothing that Triton can serve.
    """
    record = manifest["artifacts"][_FORMAT]
    judge = record.get("tolerance", manifest["tolerance"]), "quantization" in record
    if _is_sequence(manifest):
        length = _length(manifest["generation"]["max_length"], max_length)
        source = artifact_path(bundle, manifest, _FORMAT, _SEQUENCE)
        return [_sequence_model(source, signature_specs(manifest, _SEQUENCE), name, batching, length, judge)]
    if max_length is not None:
        raise ExportError("max_length is for a language model whose cache stays in the server")
    keys = [key for key in record["signatures"] if key != "decode_token" and _has_no_scalar(manifest, key)]
    if not keys:
        raise ExportError("every signature of the bundle takes or gives a scalar: Triton serves none of them")
    models = []
    for key in keys:
        source = artifact_path(bundle, manifest, _FORMAT, key)
        signature = signature_specs(manifest, key)
        places = _places(source, signature[1])
        full = name if len(keys) == 1 else f"{name}_{key}"
        proof = SignatureProof(key, {output: place for output, (place, _) in places.items()}, judge)
        models.append(TritonModel(full, source, _config(full, _stateless(signature, places, batching)), proof))
    return models


def _sequence_model(source, signature, name, batching, length, judge):
    places = _places(source, signature[1])
    states = _states(signature[0], places, length)
    types = {spec.name: spec.dtype for spec in signature[0]}
    proof = SequenceProof(places["logits"][0], states, types, judge)
    return TritonModel(name, source, _config(name, _sequence(signature, places, states, batching)), proof)


def _config(name, fields):
    return text_proto({"name": name, "backend": "onnxruntime", **fields})


def _has_no_scalar(manifest, key):
    inputs, outputs = signature_specs(manifest, key)
    return all(spec.axes for spec in (*inputs, *outputs))


def _is_sequence(manifest):
    """Whether a bundle is a language model of which one file reads prompts and tokens, with nothing but its cache."""
    record = manifest.get("generation")
    return record is not None and not record["is_encoder_decoder"] and _SEQUENCE in manifest["signatures"]


def _length(most, asked):
    if asked is None:
        return most or _UNBOUNDED
    if isinstance(asked, bool) or not isinstance(asked, int) or asked < 2:
        raise ExportError(f"max_length must be an int of at least 2, not {asked!r}")
    if most is not None and asked > most:
        raise ExportError(f"max_length is {asked}; the model holds {most} tokens")
    return asked


def _places(path, outputs):
    """Name and shape in the file, by the output's name in the manifest: they are equal by position."""
    found = onnx_session(str(path), 1).get_outputs()
    return {spec.name: (each.name, each.shape) for spec, each in zip(outputs, found, strict=True)}


def _stateless(signature, places, batching):
    """The fields of a model whose requests know nothing of each other."""
    inputs, outputs = signature
    together = why_alone(inputs, outputs) is None
    fields = {
        "max_batch_size": batching.max_batch_size if together else 0,
        "input": [_tensor(spec, spec.name, spec.shape, together) for spec in inputs],
        "output": [_tensor(spec, *places[spec.name], together) for spec in outputs],
    }
    if together:
        fields["dynamic_batching"] = {
            "preferred_batch_size": [batching.max_batch_size],
            "max_queue_delay_microseconds": batching.wait_microseconds,
            "default_queue_policy": {"max_queue_size": batching.max_waiting},
        }
    return fields


def _states(inputs, places, length):
    """What the server keeps between the requests of a text: dict of input to output, shape and the axis of tokens."""
    states = {}
    for spec in inputs:
        if spec.name not in _OWN:
            sizes = [length if axis else size for axis, size in zip(spec.axes[1:], spec.shape[1:], strict=True)]
            axis = next((index for index, each in enumerate(spec.axes[1:]) if each), None)
            states[spec.name] = places[spec.name][0], sizes, axis
    return states


def _sequence(signature, places, states, batching):
    """The fields of a model whose cache the server keeps."""
    inputs, outputs = signature
    types = {spec.name: Enum(_TYPES[spec.dtype]) for spec in inputs}
    logits = next(spec for spec in outputs if spec.name == "logits")
    return {
        "max_batch_size": batching.max_batch_size,
        "input": [_tensor(spec, spec.name, spec.shape, True) for spec in inputs if spec.name in _OWN],
        "output": [_tensor(logits, *places["logits"], True)],
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


def _state(name, output, kind, dims):
    """A tensor of the cache, zeros where a sequence begins."""
    initial = {"data_type": kind, "dims": dims, "zero_data": True, "name": "zeros"}
    return {"input_name": name, "output_name": output, "data_type": kind, "dims": dims, "initial_state": initial}


def _tensor(spec, name, shape, is_batched):
    """An input or output; without its first axis where that is the batch."""
    dims = [size if isinstance(size, int) else known or -1 for size, known in zip(shape, spec.shape, strict=True)]
    dims = [-1 if size is None else size for size in dims]
    fields = {"name": name, "data_type": Enum(_TYPES[spec.dtype])}
    if is_batched and len(dims) == 1:
        return {**fields, "dims": [1], "reshape": {}}  # One number for each example; Triton knows no fewer axes.
    return {**fields, "dims": dims[1:] if is_batched else dims}
