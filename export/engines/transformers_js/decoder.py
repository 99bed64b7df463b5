"""The graph of a decoder for transformers.js, and its run in ONNX Runtime as the library runs it."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from keras_transformer.export.data.array_spec import ArraySpec
from keras_transformer.export.data.export_spec import ExportSpec, Probe, Signature
from keras_transformer.export.engines.greedy import Steps
from keras_transformer.export.engines.language_graph import graph_spec
from keras_transformer.export.engines.past_present import PastPresent, plain
from keras_transformer.export.onnx.format import ONNX
from keras_transformer.export.onnx.runtime import onnx_session
from keras_transformer.utils.types import Tensor

if TYPE_CHECKING:
    import keras

    from keras_transformer.utils.types import Path


DECODE = "decode"
# transformers.js sizes the empty cache by this name of the axis.
BATCH = "batch_size"
_UNBOUNDED, _LONGEST = 12, 300


def decoder_spec(model: keras.Model, cache: PastPresent, tolerance: float | None) -> ExportSpec:
    """Export spec of a decoder with one signature, for prompts and for single tokens.

    The library pads prompts on the left, and says so with the mask. The graph moves the tokens of each row to the left, so
    that a token at position p is in slot p of the cache: what a row computes does not depend on the others, and no mask
    over the slots is needed, since those of padding are overwritten.

    Args:
        model: `LanguageModel`, float32.
        cache: `PastPresent` of the model.
        tolerance: largest difference allowed, as a share of each output's scale; None for what rounding explains.

    Returns:
        An `ExportSpec` whose names have "_" where those of the file have "."; see `past_present.with_dots`.
    """
    inputs = (
        ArraySpec("input_ids", "int64", (None, None), (BATCH, "length")),
        ArraySpec("attention_mask", "int64", (None, None), (BATCH, "total_length")),
        *cache.inputs(BATCH),
    )
    signature = Signature(_step(model, cache), inputs, _probes(model, cache), formats=(ONNX.name,))
    return graph_spec(model, {DECODE: signature}, tolerance)


def _step(model: keras.Model, cache: PastPresent) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    def step(tensors):
        token_ids = tf.cast(tensors["input_ids"], "int32")
        mask = tf.cast(tensors["attention_mask"], "int32")
        length = tf.shape(token_ids)[1]
        new = mask[:, tf.shape(mask)[1] - length :]
        count = tf.reduce_sum(new, axis=1)
        start = tf.reduce_sum(mask, axis=1) - count
        padding = tf.argmax(new, axis=1, output_type="int32")  # On the left.
        moved = tf.math.floormod(tf.expand_dims(padding, 1) + tf.range(length), length)
        token_ids = tf.gather(token_ids, moved, axis=1, batch_dims=1)
        hidden, slots = model.stepwise(token_ids, cache.with_slots(tensors, length), start)
        last = tf.maximum(count - 1, 0)
        logits = model._to_logits(tf.gather(hidden, tf.expand_dims(last, 1), axis=1, batch_dims=1))
        return {"logits": logits, **cache.present(slots)}

    return step


def _probes(model: keras.Model, cache: PastPresent) -> list[Probe]:
    """Prompts of unequal lengths, one further token of each, several further tokens, and the last token of a long text."""
    most = model.max_length or _UNBOUNDED
    size = min(7, most - 1)
    lengths = [size, max(size - 3, 1), 1]
    step = _step(model, cache)
    prompts = [tokens(model, f"prompt {row}", (1, length))[0] for row, length in enumerate(lengths)]
    first = Probe(arrays(prompts, cache.empty(3, plain)), "batch=3, prompts of unequal lengths")
    one = Probe(arrays(prompts[:1], cache.empty(1, plain)), "batch=1, a prompt")
    further = _next(step, cache, first, tokens(model, "further", (3, 1)))
    several = _next(step, cache, one, tokens(model, "several", (1, max(min(3, most - size), 1))))
    return [
        first,
        one,
        Probe(further, "batch=3, one token"),
        Probe(several, "batch=1, further tokens"),
        Probe(_last(model, cache, min(most, _LONGEST) - 1), "batch=1, the last token"),
    ]


def _next(
    step: Callable[..., Mapping[str, tf.Tensor]], cache: PastPresent, probe: Probe, token_ids: np.ndarray
) -> dict[str, np.ndarray]:
    """The inputs of the step after a probe."""
    outputs = step({name: tf.constant(array) for name, array in probe.inputs.items()})
    past = cache.next_past({name: tensor.numpy() for name, tensor in outputs.items()}, plain)
    mask = np.concatenate([probe.inputs["attention_mask"], np.ones_like(token_ids)], axis=1)
    return {"input_ids": token_ids, "attention_mask": mask, **past}


def _last(model: keras.Model, cache: PastPresent, past: int) -> dict[str, np.ndarray]:
    """One token after a past of random keys and values."""
    random = np.random.default_rng(0)
    shape = (1, cache.cache.num_heads, past, cache.cache.head_dim)
    slots = {spec.name: random.normal(size=shape).astype("float32") for spec in cache.inputs()}
    return {"input_ids": tokens(model, "last", (1, 1)), "attention_mask": np.ones((1, past + 1), "int64"), **slots}


def tokens(model: keras.Model, label: str, shape: tuple[int, int]) -> np.ndarray:
    """Random token ids, int64."""
    random = np.random.default_rng(zlib.crc32(f"transformers.js {label} {shape}".encode()))
    return random.integers(0, model.vocabulary_size, shape)


def arrays(prompts: Sequence[Sequence[int]], past: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What the library passes for prompts: padded on the left."""
    length = max(map(len, prompts))
    token_ids, mask = np.zeros((2, len(prompts), length), "int64")
    for row, prompt in enumerate(prompts):
        token_ids[row, length - len(prompt) :] = prompt
        mask[row, length - len(prompt) :] = 1
    return {"input_ids": token_ids, "attention_mask": mask, **past}


def decoder_steps(path: Path, cache: PastPresent, prompts: Sequence[Sequence[int]], max_new_tokens: int) -> Steps:
    """Runs a file as the library does: a batch of prompts, then single tokens; see `greedy.Steps`."""
    session = onnx_session(str(path), 1)
    names = [output.name for output in session.get_outputs()]
    given = arrays(prompts, cache.empty(len(prompts)))
    for _ in range(max_new_tokens):
        results: list[np.ndarray] = session.run(None, given)
        found = dict(zip(names, results, strict=True))
        chosen = np.asarray((yield found["logits"][:, -1]), "int64")[:, None]
        mask = np.concatenate([given["attention_mask"], np.ones_like(chosen)], axis=1)
        given = {"input_ids": chosen, "attention_mask": mask, **cache.next_past(found)}
