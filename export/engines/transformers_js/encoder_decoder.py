"""The graphs of an encoder-decoder for transformers.js, and their run in ONNX Runtime as the library runs them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import tensorflow as tf

from keras_transformer.export.data.array_spec import ArraySpec
from keras_transformer.export.data.export_spec import ExportSpec, Probe, Signature
from keras_transformer.export.engines.greedy import Steps
from keras_transformer.export.engines.key_value_cache import cross_cache, key_value_cache
from keras_transformer.export.engines.language_graph import graph_spec
from keras_transformer.export.engines.past_present import PastPresent, plain
from keras_transformer.export.engines.transformers_js.decoder import BATCH, DECODE, tokens
from keras_transformer.export.engines.transformers_js.tasks import ENGINE
from keras_transformer.export.onnx.format import ONNX
from keras_transformer.export.onnx.runtime import onnx_session
from keras_transformer.export.spec.language.probes import LanguageProbes, label_of
from keras_transformer.utils.types import Tensor

if TYPE_CHECKING:
    import pathlib

    import keras


ENCODE = "encode"
HIDDEN, STATES, SOURCE_MASK = "last_hidden_state", "encoder_hidden_states", "encoder_attention_mask"
FEATURES = "input_features"
_LENGTH, _LONGEST = "encoder_length", 300


class Caches(NamedTuple):
    """The caches of an encoder-decoder.

    Args:
        decoder: `PastPresent` of the tokens that the decoder has read.
        encoder: `PastPresent` of the source.
    """

    decoder: PastPresent
    encoder: PastPresent

    @classmethod
    def of(cls, model: keras.Model) -> Caches:
        """The caches of a `LanguageModel`.

        Raises:
            InvalidModelError: it is no encoder-decoder with keys and values of one shape in all layers.
        """
        own = key_value_cache(model, ENGINE, is_encoder_decoder=True)
        return cls(PastPresent(own, "decoder."), PastPresent(cross_cache(model, own, ENGINE), "encoder."))


def encoder_decoder_spec(model: keras.Model, caches: Caches, tolerance: float | None) -> ExportSpec:
    """Export spec of an encoder-decoder with the signatures `encode` and `decode`.

    The first call of the decoder computes the keys and values of the source from the output of the encoder, and returns
    them; later calls take them as they are. It is one graph without branches: keys and values are computed of what the past
    does not have yet, in later calls of one token, which is dropped, because not every runtime multiplies by no rows.

    Args:
        model: `LanguageModel`, float32.
        caches: `Caches` of the model.
        tolerance: largest difference allowed, as a share of each output's scale; None for what rounding explains.

    Returns:
        An `ExportSpec` whose names have "_" where those of the files have "."; see `past_present.with_dots`.
    """
    return graph_spec(model, {ENCODE: _encode(model), DECODE: _decode(model, caches)}, tolerance)


def _encode(model: keras.Model) -> Signature:
    def encode(tensors):
        return {HIDDEN: model.stepwise.encoder_output(*_source(model, tensors))}

    probes = LanguageProbes(model)
    sizes = [(1, 5), (3, 9)]
    if model.source_shape is None and model.max_length:
        sizes = [(batch, min(length, model.max_length)) for batch, length in (*sizes, (2, _LONGEST))]
    cases = [Probe(given(model, probes.source(*each)), label_of(*each)) for each in sizes]
    return Signature(encode, _source_inputs(model), cases, formats=(ONNX.name,))


def _source_inputs(model: keras.Model) -> tuple[ArraySpec, ...]:
    if model.source_shape is None:
        axes = (BATCH, _LENGTH)
        return tuple(ArraySpec(name, "int64", (None, None), axes) for name in ("input_ids", "attention_mask"))
    frames, bins = model.source_shape
    return (ArraySpec(FEATURES, "float32", (None, bins, frames), (BATCH, None, None)),)


def _source(model: keras.Model, tensors: dict[str, Tensor]) -> list[Tensor]:
    """The inputs of the encoder of the model."""
    if model.source_shape is not None:
        return [tf.transpose(tensors[FEATURES], [0, 2, 1])]
    return [tf.cast(tensors["input_ids"], "int32"), tf.greater(tensors["attention_mask"], 0)]


def given(model: keras.Model, source: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A source under the names and dtypes of the files."""
    values = [source[name] for name in model.source_names]
    if model.source_shape is not None:
        return {FEATURES: np.ascontiguousarray(values[0].transpose(0, 2, 1))}
    return dict(zip(("input_ids", "attention_mask"), (each.astype("int64") for each in values), strict=True))


def _decode(model: keras.Model, caches: Caches) -> Signature:
    length, width = model.stepwise.encoder_shape[1:]
    states = ArraySpec(STATES, "float32", (None, length, width), (BATCH, None if length else _LENGTH, None))
    inputs = [ArraySpec("input_ids", "int64", (None, None), (BATCH, "length")), states]
    if model.source_shape is None:
        inputs.append(ArraySpec(SOURCE_MASK, "int64", (None, None), (BATCH, _LENGTH)))
    inputs += [*caches.decoder.inputs(BATCH), *caches.encoder.inputs(BATCH, "past_encoder_length")]
    return Signature(_step(model, caches), tuple(inputs), _probes(model, caches), formats=(ONNX.name,))


def _step(model: keras.Model, caches: Caches) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    def step(tensors):
        token_ids = tf.cast(tensors["input_ids"], "int32")
        known = caches.decoder.past(tensors)
        start = tf.shape(next(iter(known.values())))[2]
        memory = _memory(model, caches.encoder.past(tensors), tensors[STATES])
        source = {"source_padding_mask": tf.greater(tensors[SOURCE_MASK], 0)} if SOURCE_MASK in tensors else {}
        slots = caches.decoder.with_slots(tensors, tf.shape(token_ids)[1])
        hidden, new = model.stepwise(token_ids, {**slots, **memory, **source}, start)
        present = {**caches.decoder.present(new), **caches.encoder.present(memory)}
        return {"logits": model._to_logits(hidden[:, -1:]), **present}

    return step


def _memory(model: keras.Model, past: dict[str, Tensor], states: Tensor) -> dict[str, Tensor]:
    """The keys and values of the source: those of the past, and of the states behind them."""
    missing = tf.shape(states)[1] - tf.shape(next(iter(past.values())))[2]
    behind = states[:, tf.shape(states)[1] - tf.maximum(missing, 1) :]
    found = model.stepwise.memory(behind)
    return {name: tf.concat([past[name], found[name][:, :, :missing]], axis=2) for name in past}


def _probes(model: keras.Model, caches: Caches) -> list[Probe]:
    """The first tokens of three rows, one further token of each, and several first tokens of one row."""
    step = _step(model, caches)
    most = model.max_length or 12
    first = Probe(_first(model, caches, 3, 1), "batch=3, the first token")
    outputs = step({name: tf.constant(array) for name, array in first.inputs.items()})
    found = {name: np.asarray(tensor) for name, tensor in outputs.items()}
    past = {**caches.decoder.next_past(found, plain), **caches.encoder.next_past(found, plain)}
    further = {**first.inputs, **past, "input_ids": tokens(model, "further", (3, 1))}
    several = _first(model, caches, 1, min(4, most))
    longest = _first(model, caches, 1, min(most, _LONGEST))
    return [
        first,
        Probe(further, "batch=3, the second token"),
        Probe(several, "batch=1, several first tokens"),
        Probe(longest, "batch=1, as many as possible"),
    ]


def _first(model: keras.Model, caches: Caches, batch: int, count: int) -> dict[str, np.ndarray]:
    """The inputs of the first call for `count` tokens of each row."""
    source = given(model, LanguageProbes(model).source(batch, 6))
    states = model.stepwise.encoder_output(*_source(model, {name: tf.constant(each) for name, each in source.items()}))
    mask = {SOURCE_MASK: source["attention_mask"]} if "attention_mask" in source else {}
    empty = {**caches.decoder.empty(batch, plain), **caches.encoder.empty(batch, plain)}
    return {"input_ids": tokens(model, "first", (batch, count)), STATES: np.asarray(states), **mask, **empty}


def encoder_decoder_steps(
    paths: Mapping[str, pathlib.Path],
    caches: Caches,
    source: Mapping[str, np.ndarray],
    prefix: Sequence[int],
    max_new_tokens: int,
) -> Steps:
    """Runs the files as the library does; see `greedy.Steps`.

    Args:
        paths: dict of signature name to the path of its file.
        caches: `Caches`.
        source: the inputs of the encoder.
        prefix: the first tokens of the decoder.
        max_new_tokens: int.
    """
    encoded: list[np.ndarray] = onnx_session(str(paths[ENCODE]), 1).run(None, dict(source))
    states = encoded[0]
    session = onnx_session(str(paths[DECODE]), 1)
    names = [output.name for output in session.get_outputs()]
    mask = {SOURCE_MASK: source["attention_mask"]} if "attention_mask" in source else {}
    batch = len(states)
    past = {**caches.decoder.empty(batch), **caches.encoder.empty(batch)}
    token_ids = np.array([list(prefix)] * batch, "int64")
    for _ in range(max_new_tokens):
        arrays = {"input_ids": token_ids, STATES: states, **mask, **past}
        results: list[np.ndarray] = session.run(None, arrays)
        found = dict(zip(names, results, strict=True))
        token_ids = np.asarray((yield found["logits"][:, -1]), "int64")[:, None]
        past = {**caches.decoder.next_past(found), **caches.encoder.next_past(found)}
