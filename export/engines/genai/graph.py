"""The graph of a decoder for onnxruntime-genai: new tokens and past in, logits and present out."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from keras_transformer.export.data.array_spec import ArraySpec
from keras_transformer.export.data.export_spec import ExportSpec, Probe, Signature
from keras_transformer.export.engines.key_value_cache import key_value_cache
from keras_transformer.export.engines.language_graph import graph_spec
from keras_transformer.export.engines.past_present import PastPresent, plain
from keras_transformer.export.onnx.format import ONNX
from keras_transformer.generation.stop import as_end_ids
from keras_transformer.utils.types import Tensor

if TYPE_CHECKING:
    import keras

ENGINE = "onnxruntime-genai"
SIGNATURE = "decode"


def genai_spec(model: keras.Model, tolerance: float | None) -> ExportSpec:
    """Export spec of a decoder with the one signature that the engine runs for prompts and for single tokens.

    A token at position p is in slot p of the cache. So a batch of right-padded prompts, as the engine makes it, needs no
    mask over the slots, and the slots of padding are overwritten.

    The engine ends a text at token 0 if it is given no end token, and takes no id outside of the vocabulary. So the logits
    of a model without an end token have one more column, of a token that is never chosen: see `vocabulary_size`.

    Args:
        model: `LanguageModel`, float32.
        tolerance: largest difference allowed, as a share of each output's scale; None for what rounding explains.

    Returns:
        An `ExportSpec` whose names have "_" where those of the file have "."; see `with_dots`.

    Raises:
        InvalidModelError: the engine does not support the cache of the model.
    """
    cache = PastPresent(key_value_cache(model, ENGINE))
    signature = Signature(_step(model, cache), _inputs(cache), _probes(model, cache), formats=(ONNX.name,))
    return graph_spec(model, {SIGNATURE: signature}, tolerance)


def end_ids(model: keras.Model) -> tuple[int, ...]:
    """The tokens that end a text in the engine; of a model without any, the one behind its vocabulary."""
    return as_end_ids(model.end_id) or (model.vocabulary_size,)


def vocabulary_size(model: keras.Model) -> int:
    """Number of logits for the engine."""
    return model.vocabulary_size + (not as_end_ids(model.end_id))


def _step(model: keras.Model, cache: PastPresent) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    further = vocabulary_size(model) - model.vocabulary_size

    def step(tensors):
        token_ids = tf.cast(tensors["input_ids"], "int32")
        start = tf.cast(tensors["position_ids"][:, 0], "int32")
        hidden, slots = model.stepwise(token_ids, cache.with_slots(tensors, tf.shape(token_ids)[1]), start)
        # The mask counts all tokens of a row, so its sum is the end of the new ones.
        last = tf.reduce_sum(tf.cast(tensors["attention_mask"], "int32"), axis=1) - 1 - start
        logits = model._to_logits(tf.gather(hidden, tf.expand_dims(last, 1), axis=1, batch_dims=1))
        if further:
            logits = tf.pad(logits, [[0, 0], [0, 0], [0, further]], constant_values=logits.dtype.min)
        return {"logits": logits, **cache.present(slots)}

    return step


def _inputs(cache: PastPresent) -> tuple[ArraySpec, ...]:
    axes = {"input_ids": "length", "attention_mask": "total_length", "position_ids": "length"}
    inputs = [ArraySpec(name, "int64", (None, None), ("batch", axis)) for name, axis in axes.items()]
    return (*inputs, *cache.inputs())


def _probes(model: keras.Model, cache: PastPresent) -> list[Probe]:
    """Prompts of unequal lengths, one further token of each, and several further tokens of one row."""
    most = model.max_length or 12
    prompts = _tokens(model, (3, min(7, most - 1)))
    lengths = np.array([prompts.shape[1], max(prompts.shape[1] - 3, 1), 1])
    first = Probe(arrays(prompts, lengths, 0, cache.empty(3, plain)), "batch=3, prompts of unequal lengths")
    step = _step(model, cache)
    second = arrays(_tokens(model, (3, 1)), lengths + 1, lengths, _past(step, cache, first))
    one = Probe(arrays(prompts[:1], lengths[:1], 0, cache.empty(1, plain)), "batch=1, a prompt")
    more = max(min(3, most - prompts.shape[1]), 1)
    third = arrays(_tokens(model, (1, more)), lengths[:1] + more, lengths[:1], _past(step, cache, one))
    return [first, one, Probe(second, "batch=3, one token"), Probe(third, f"batch=1, {more} more tokens")]


def _past(step: Callable[..., Mapping[str, tf.Tensor]], cache: PastPresent, probe: Probe) -> dict[str, np.ndarray]:
    outputs = step({name: tf.constant(array) for name, array in probe.inputs.items()})
    return cache.next_past({name: tensor.numpy() for name, tensor in outputs.items()}, plain)


def _tokens(model: keras.Model, shape: tuple[int, ...]) -> np.ndarray:
    random = np.random.default_rng(zlib.crc32(f"genai {shape}".encode()))
    return random.integers(0, model.vocabulary_size, shape)


def arrays(
    token_ids: np.ndarray, lengths: np.ndarray | Sequence[int], start: np.ndarray | int, past: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Returns the inputs that the engine passes to the graph.

    Args:
        token_ids: int `(B, T)`: new tokens, padded on the right.
        lengths: int `(B,)`: tokens of each row, new ones included.
        start: int, or int `(B,)`: tokens of each row before.
        past: dict of name to array.

    Returns:
        Dict of input name to array.
    """
    batch, new = token_ids.shape
    start = np.broadcast_to(start, (batch,))
    total = next(iter(past.values())).shape[2] + new
    position_ids = (start[:, None] + np.arange(new)).astype("int64")
    mask = (np.arange(total) < np.asarray(lengths)[:, None]).astype("int64")
    return {"input_ids": token_ids.astype("int64"), "attention_mask": mask, "position_ids": position_ids, **past}
