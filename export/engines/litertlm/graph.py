"""A decoder as LiteRT-LM calls it: `prefill_T` for chunks of a prompt, `decode` for one token; one row, fixed shapes."""

import zlib

import numpy as np
import tensorflow as tf

from keras_transformer.backend import keras_private
from keras_transformer.export.engines.genai.cache import key_value_cache
from keras_transformer.export.spec.export_spec import ArraySpec, ExportSpec, Probe, Signature
from keras_transformer.export.spec.functional import fill_references
from keras_transformer.export.spec.operation_origin import layer_of
from keras_transformer.export.tflite.format import TFLITE

ENGINE = "LiteRT-LM"
DECODE = "decode"
CACHE = ("kv_cache_k_{}", "kv_cache_v_{}")


def litertlm_spec(model, slots, buckets, tolerance):
    """Export spec of a decoder with the signatures that the engine looks for.

    The engine writes where a chunk begins into the first place of `input_pos`, and zeros where it has padded the chunk: so
    the tokens are read at the places that follow the first. What padding writes past them is never looked at, since a
    query sees no slot after its own, and is written over.

    Args:
        model: `LanguageModel`, float32.
        slots: int: tokens that the cache holds.
        buckets: ints: the lengths of chunks.
        tolerance: largest difference allowed, as a share of each output's scale.

    Returns:
        An `ExportSpec`.

    Raises:
        InvalidModelError: the model's cache is not one that the engine can carry.
    """
    cache = key_value_cache(model, ENGINE)
    signatures = {f"prefill_{bucket}": _signature(model, cache, slots, bucket) for bucket in buckets}
    signatures[DECODE] = _signature(model, cache, slots, 1, is_decode=True)
    for signature in signatures.values():
        fill_references(signature)
    layers = {layer.name: layer for layer in keras_private.flatten_layers(model, include_self=False)}
    locate = lambda op, node: layer_of(op, node, layers, [])  # noqa: E731
    return ExportSpec(signatures, tolerance, locate, tuple(model.variables))


def _signature(model, cache, slots, length, is_decode=False):
    shape = (1, cache.num_heads, slots, cache.head_dim)
    inputs = [
        ArraySpec("tokens", "int32", (1, length), (None, None)),
        ArraySpec("input_pos", "int32", (length,), (None,)),
    ]
    inputs += [ArraySpec(name, "float32", shape, (None,) * 4) for pair in _names(cache) for name in pair]
    function = _function(model, cache, slots, length, is_decode)
    probes = [_probe(model, inputs, start, count) for start, count in _chunks(slots, length)]
    return Signature(function, tuple(inputs), probes, formats=(TFLITE.name,))


def _function(model, cache, slots, length, is_decode):
    # Room past the end for what pads the last chunk of a text that fills the cache.
    room = tf.constant([[0, 0], [0, 0], [0, length - 1], [0, 0]])

    def run(tensors):
        given = {
            name: tf.pad(tensors[label], room) if length > 1 else tensors[label]
            for names, labels in zip(cache.names(), _names(cache), strict=True)
            for name, label in zip(names, labels, strict=True)
        }
        hidden, new = model.stepwise(tensors["tokens"], given, tensors["input_pos"][:1])
        outputs = {
            label: new[name][:, :, :slots]
            for names, labels in zip(cache.names(), _names(cache), strict=True)
            for name, label in zip(names, labels, strict=True)
        }
        return {"logits": model._to_logits(hidden), **outputs} if is_decode else outputs

    return run


def _names(cache):
    return [tuple(name.format(layer) for name in CACHE) for layer in range(len(cache.places))]


def _chunks(slots, length):
    """Where a chunk starts and how many tokens it has: a whole one, a padded one, and one that ends with the cache."""
    if length == 1:
        return [(0, 1), (slots - 1, 1)]
    return [(0, min(length, slots)), (min(3, slots - 1), 1), (slots - length // 2, length // 2)]


def _probe(model, inputs, start, count):
    random = np.random.default_rng(zlib.crc32(f"litertlm {start} {count}".encode()))
    arrays = {spec.name: np.zeros(spec.shape, spec.dtype) for spec in inputs}
    arrays["tokens"][0, :count] = random.integers(0, model.vocabulary_size, count)
    arrays["input_pos"][:count] = np.arange(start, start + count)
    for spec in inputs[2:]:
        arrays[spec.name][:, :, :start] = random.normal(0, 1, (1, spec.shape[1], start, spec.shape[3]))
    return Probe(arrays, f"{count} tokens from {start} on")
