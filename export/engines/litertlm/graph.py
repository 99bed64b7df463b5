"""The graphs of a decoder for LiteRT-LM: `prefill_T` for chunks of a prompt, `decode` for one token; fixed shapes."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from keras_transformer.export.data.array_spec import ArraySpec
from keras_transformer.export.data.export_spec import ExportSpec, Probe, Signature
from keras_transformer.export.engines.key_value_cache import key_value_cache
from keras_transformer.export.engines.language_graph import graph_spec
from keras_transformer.export.tflite.format import TFLITE
from keras_transformer.utils.types import Tensor

if TYPE_CHECKING:
    import keras

    from keras_transformer.export.engines.key_value_cache import KeyValueCache


ENGINE = "LiteRT-LM"
DECODE = "decode"
CACHE = ("kv_cache_k_{}", "kv_cache_v_{}")


def litertlm_spec(model: keras.Model, slots: int, buckets: Sequence[int], tolerance: float | None) -> ExportSpec:
    """Export spec of a decoder with the signatures of the engine.

    The first element of `input_pos` is the position of the first token of a chunk; elements of padding are 0. So positions
    are counted from the first one. The slots of padding are behind all queries, and are overwritten.

    Args:
        model: `LanguageModel`, float32.
        slots: int: number of slots of the cache.
        buckets: ints: the lengths of chunks.
        tolerance: largest difference allowed, as a share of each output's scale; None for what rounding explains.

    Returns:
        An `ExportSpec`.

    Raises:
        InvalidModelError: the engine does not support the cache of the model.
    """
    cache = key_value_cache(model, ENGINE)
    signatures = {f"prefill_{bucket}": _signature(model, cache, slots, bucket) for bucket in buckets}
    signatures[DECODE] = _signature(model, cache, slots, 1, is_decode=True)
    return graph_spec(model, signatures, tolerance)


def _signature(model: keras.Model, cache: KeyValueCache, slots: int, length: int, is_decode: bool = False) -> Signature:
    shape = (1, cache.num_heads, slots, cache.head_dim)
    inputs = [
        ArraySpec("tokens", "int32", (1, length), (None, None)),
        ArraySpec("input_pos", "int32", (length,), (None,)),
    ]
    inputs += [ArraySpec(name, "float32", shape, (None,) * 4) for pair in _names(cache) for name in pair]
    function = _function(model, cache, slots, length, is_decode)
    probes = [_probe(model, inputs, start, count) for start, count in _chunks(slots, length)]
    return Signature(function, tuple(inputs), probes, formats=(TFLITE.name,))


def _function(
    model: keras.Model, cache: KeyValueCache, slots: int, length: int, is_decode: bool
) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    # Slots for the padding of the last chunk of a text that fills the cache.
    padding = tf.constant([[0, 0], [0, 0], [0, length - 1], [0, 0]])

    def run(tensors):
        padded = {
            name: tf.pad(tensors[label], padding) if length > 1 else tensors[label]
            for names, labels in zip(cache.names(), _names(cache), strict=True)
            for name, label in zip(names, labels, strict=True)
        }
        hidden, new = model.stepwise(tensors["tokens"], padded, tensors["input_pos"][:1])
        outputs = {
            label: new[name][:, :, :slots]
            for names, labels in zip(cache.names(), _names(cache), strict=True)
            for name, label in zip(names, labels, strict=True)
        }
        return {"logits": model._to_logits(hidden), **outputs} if is_decode else outputs

    return run


def _names(cache: KeyValueCache) -> list[tuple[str, ...]]:
    return [tuple(name.format(layer) for name in CACHE) for layer in range(len(cache.paths))]


def _chunks(slots: int, length: int) -> list[tuple[int, int]]:
    """Start and number of tokens of chunks: a full one, a padded one, and one at the end of the cache."""
    if length == 1:
        return [(0, 1), (slots - 1, 1)]
    return [(0, min(length, slots)), (min(3, slots - 1), 1), (slots - length // 2, length // 2)]


def _probe(model: keras.Model, inputs: Sequence[ArraySpec], start: int, count: int) -> Probe:
    random = np.random.default_rng(zlib.crc32(f"litertlm {start} {count}".encode()))
    shapes = {spec.name: [size or 0 for size in spec.shape] for spec in inputs}
    arrays = {spec.name: np.zeros(shapes[spec.name], spec.dtype) for spec in inputs}
    arrays["tokens"][0, :count] = random.integers(0, model.vocabulary_size, count)
    arrays["input_pos"][:count] = np.arange(start, start + count)
    for spec in inputs[2:]:
        arrays[spec.name][:, :, :start] = random.normal(0, 1, (1, shapes[spec.name][1], start, shapes[spec.name][3]))
    return Probe(arrays, f"{count} tokens from {start} on")
