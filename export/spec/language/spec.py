"""Export specs of language models."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.backend.layer_order import layers_in_order
from keras_transformer.export.data.export_spec import STEPWISE_TOLERANCE, ExportSpec, Signature
from keras_transformer.export.errors import InvalidModelError
from keras_transformer.export.graph.operation_origin import locator
from keras_transformer.export.spec.language.probes import LanguageProbes
from keras_transformer.export.spec.language.signatures import Function, LanguageSignatures
from keras_transformer.export.spec.probes import fill_references
from keras_transformer.utils.types import Cache

if TYPE_CHECKING:
    import keras

_UNBOUNDED, _MOST_SLOTS = 512, 1024
_BUCKETS = (32, 128)


@dataclasses.dataclass(frozen=True)
class GenerationOptions:
    """Options of the export of a language model.

    Args:
        whole_graph: bool. Whether to write `generate` too: greedy decoding with its loop inside the graph.
        static_length: int: slots of the cache in the signatures of fixed shapes (TFLite), which longer texts do not use;
            None for the model's maximum length, but at most 1,024, or 512 where it has none.
        prefill_buckets: lengths of prompts, or of sources, that have signatures of fixed shapes (TFLite).
        chunk_length: int: tokens that the signature of fixed shapes reads which goes on with a text (TFLite); None for none.
            An encoder-decoder has none, nor has a model whose static length is no more than that.

    Example:

    >>> GenerationOptions(whole_graph=False, prefill_buckets=(64,)).static_length is None
    True
    """

    whole_graph: bool = True
    static_length: int | None = None
    prefill_buckets: tuple[int, ...] = _BUCKETS
    chunk_length: int | None = 16


def language_spec(
    model: keras.Model, tolerance: float | None = None, options: GenerationOptions | None = None
) -> ExportSpec:
    """Export spec of a `LanguageModel`.

    Signatures: `encode` (encoder-decoder), `prefill`, `decode` and `generate`, with dynamic batch and lengths; for ONNX
    also `decode_token`, of one token a row; for TFLite also `prefill_32`, `prefill_128`, ..., `extend_16` and `decode_1`, of
    fixed shapes for one row; of an encoder-decoder `encode_32`, ... and `decode_1_32`, ..., by the length of the source, or,
    where that is not text, `decode_1`, and `encode_1` if all sources have one length; of a model of text and images
    `decode_1_1`, for one image.

    Args:
        model: the model, float32, on the TensorFlow backend.
        tolerance: largest difference allowed, as a share of each output's scale; None for what rounding explains.
        options: `GenerationOptions`, or None for its defaults.

    Returns:
        An `ExportSpec` whose probes have the outputs of the Keras model.

    Raises:
        InvalidModelError: the model computes something else token by token than on whole sequences.
    """
    options = options or GenerationOptions()
    check_stepwise(model, tolerance)
    make = LanguageSignatures(model)
    signatures = _signatures(make, options)
    # A model of another library is compared with its own steps, not with what was made of them.
    own = getattr(model, "own", None)
    references = signatures if own is None else _signatures(LanguageSignatures(own), options)
    for name, signature in signatures.items():
        _fill(signature, references[name].function)
    most, layers_of = model.max_length, getattr(model, "task", model)
    limits = {} if most is None else {"length": most, "cache_length": most}
    record = {**model.generation_spec.to_dict(), **make.states}
    return ExportSpec(
        signatures,
        tolerance,
        locator(layers_of, has_operations=False),
        tuple(model.variables),
        record,
        axis_limits=limits,
        layers=tuple(layers_in_order(layers_of)),
    )


def _fill(signature: Signature, function: Function) -> None:
    """Fills the references of all probes in."""
    signature = dataclasses.replace(signature, function=function)
    fill_references(signature)
    fill_references(dataclasses.replace(signature, probes=signature.further, is_repeatable=True))


def _signatures(make: LanguageSignatures, options: GenerationOptions) -> dict[str, Signature]:
    model = make.model
    signatures = {"encode": make.encode()} if model.is_encoder_decoder else {}
    signatures |= {"prefill": make.prefill(), "decode": make.decode(), "decode_token": make.decode_token()}
    if options.whole_graph:
        signatures["generate"] = make.generate()
    length = static_length(model, options)
    if model.is_encoder_decoder and model.takes_prompts:
        if len(model.source_names) > 1:  # Images of any size have no fixed shapes.
            return signatures
        signatures["decode_1_1"] = make.static_decode(length, source_length=1)
    elif model.source_shape is not None:
        signatures["decode_1"] = make.static_decode(length)
        if None not in model.source_shape:
            signatures["encode_1"] = make.static_encode()
    else:
        for bucket in sorted({min(bucket, length) for bucket in options.prefill_buckets}):
            signatures |= make.static(bucket, length)
    if not model.is_encoder_decoder:
        signatures["decode_1"] = make.static_decode(length)
        if options.chunk_length and options.chunk_length < length:
            signatures[f"extend_{options.chunk_length}"] = make.static_extend(options.chunk_length, length)
    return signatures


def static_length(model: keras.Model, options: GenerationOptions) -> int:
    """Slots of the cache in signatures of fixed shapes."""
    return options.static_length or min(model.max_length or _UNBOUNDED, _MOST_SLOTS)


def check_stepwise(model: keras.Model, tolerance: float | None = None) -> None:
    """Refuses a model whose outputs with a cache, in steps, differ from those on whole sequences.

    Raises:
        InvalidModelError: they differ; the message has the difference.
    """
    batch, length = 2, min(6, model.max_length or 6)
    token_ids = LanguageProbes(model).tokens("whole", (batch, length))
    half = length // 2
    inputs, cache = _inputs_and_cache(model, token_ids, half)
    whole = np.asarray(model(inputs, training=False))
    first, _, cache = model.prefill(token_ids[:, :half], np.full(batch, half, "int32"), cache)
    rest, _, _ = model.decode_step(token_ids[:, half:], cache, np.full(batch, half, "int32"))
    stepwise = np.concatenate([first, rest], axis=1)
    difference = np.abs(stepwise - whole[:, half - 1 :]).max() / max(np.abs(whole).max(), 1e-6)
    if not difference <= max(tolerance or 0.0, STEPWISE_TOLERANCE):
        raise InvalidModelError(
            f"model '{model.name}' read token by token differs from itself read whole by {difference:.1e} of the scale"
        )


def _inputs_and_cache(
    model: keras.Model, token_ids: np.ndarray, prompt_length: int
) -> tuple[dict[str, np.ndarray], Cache]:
    """Inputs of the whole model for prompts and what follows them, and the empty cache for reading them in steps."""
    probes, (batch, length) = LanguageProbes(model), token_ids.shape
    # What a cache in int8 rounds is no difference between the two ways to compute.
    mask, cache = np.ones((batch, length), bool), model.init_cache(batch, length, "float32")
    if model.is_encoder_decoder:
        source = probes.source(batch, 5)
        side = "" if model.takes_prompts else "target_"
        inputs = {**source, f"{side}token_ids": token_ids, f"{side}padding_mask": mask}
        # A prompt is the prefix of a prefix language model.
        if any(tensor.name == "prefix_mask" for tensor in model.inputs):
            inputs["prefix_mask"] = mask & (np.arange(length) < prompt_length)
        return inputs, {**cache, **model.encode(*source.values())}
    inputs = {"token_ids": token_ids, "padding_mask": mask}
    one_document = {"segment_ids": np.ones_like(token_ids), "positions": np.cumsum(mask, 1, dtype="int32") - 1}
    inputs |= {tensor.name: one_document[tensor.name] for tensor in model.inputs if tensor.name in one_document}
    # Further inputs, such as retrieved neighbors, are zeros, as in an empty cache.
    others = [tensor for tensor in model.inputs if tensor.name not in inputs]
    inputs |= {each.name: np.zeros((batch, *(size or 1 for size in each.shape[1:])), each.dtype) for each in others}
    return inputs, cache
