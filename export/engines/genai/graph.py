"""The graph of a decoder for onnxruntime-genai: new tokens and past in, logits and present out."""

from __future__ import annotations

import dataclasses
import pathlib
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import tensorflow as tf

from keras_transformer.backend.layer_order import layers_in_order
from keras_transformer.export.engines.genai.cache import key_value_cache
from keras_transformer.export.onnx.format import ONNX
from keras_transformer.export.onnx.traversal import all_graphs
from keras_transformer.export.spec.export_spec import ArraySpec, ExportSpec, Probe, Signature
from keras_transformer.export.spec.functional import fill_references
from keras_transformer.export.spec.operation_origin import locator

if TYPE_CHECKING:
    from keras_transformer.export.engines.genai.cache import KeyValueCache


ENGINE = "onnxruntime-genai"
SIGNATURE = "decode"
# The default names of the engine and of other readers of such files.
PAST = ("past_key_values.{}.key", "past_key_values.{}.value")
PRESENT = ("present.{}.key", "present.{}.value")


def genai_spec(model: Any, tolerance: float | None) -> ExportSpec:
    """Export spec of a decoder with the one signature that the engine runs for prompts and for single tokens.

    A token at position p is in slot p of the cache. So a batch of right-padded prompts, as the engine makes it, needs no
    mask over the slots, and the slots of padding are overwritten.

    Args:
        model: `LanguageModel`, float32.
        tolerance: largest difference allowed, as a share of each output's scale; None for what rounding explains.

    Returns:
        An `ExportSpec` whose names have "_" where those of the file have "."; see `with_dots`.

    Raises:
        InvalidModelError: the engine does not support the cache of the model.
    """
    cache = key_value_cache(model, ENGINE)
    signature = Signature(_step(model, cache), _inputs(cache), _probes(model, cache), formats=(ONNX.name,))
    fill_references(signature)
    return ExportSpec(
        {SIGNATURE: signature},
        tolerance,
        locator(model, has_operations=False),
        tuple(model.variables),
        layers=tuple(layers_in_order(model)),
    )


def _step(model: Any, cache: KeyValueCache) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def step(tensors):
        token_ids = tf.cast(tensors["input_ids"], "int32")
        start = tf.cast(tensors["position_ids"][:, 0], "int32")
        batch, length = tf.shape(token_ids)[0], tf.shape(token_ids)[1]
        padding = tf.zeros(tf.stack([batch, cache.num_heads, length, cache.head_dim]))
        slots = {
            name: tf.concat([tensors[_plain(past.format(layer))], padding], axis=2)
            for layer, names in enumerate(cache.names())
            for name, past in zip(names, PAST, strict=True)
        }
        hidden, slots = model.stepwise(token_ids, slots, start)
        # The mask counts all tokens of a row, so its sum is the end of the new ones.
        last = tf.reduce_sum(tf.cast(tensors["attention_mask"], "int32"), axis=1) - 1 - start
        logits = model._to_logits(tf.gather(hidden, tf.expand_dims(last, 1), axis=1, batch_dims=1))
        presents = {
            present.format(layer): slots[name]
            for layer, names in enumerate(cache.names())
            for name, present in zip(names, PRESENT, strict=True)
        }
        return {"logits": logits, **presents}

    return step


def _inputs(cache: KeyValueCache) -> tuple[ArraySpec, ...]:
    axes = {"input_ids": "length", "attention_mask": "total_length", "position_ids": "length"}
    inputs = [ArraySpec(name, "int64", (None, None), ("batch", axis)) for name, axis in axes.items()]
    shape, names = (None, cache.num_heads, None, cache.head_dim), ("batch", None, "past_length", None)
    for layer in range(len(cache.paths)):
        inputs += [ArraySpec(_plain(past.format(layer)), "float32", shape, names) for past in PAST]
    return tuple(inputs)


def _probes(model: Any, cache: KeyValueCache) -> list[Probe]:
    """Prompts of unequal lengths, one further token of each, and several further tokens of one row."""
    most = model.max_length or 12
    prompts = _tokens(model, (3, min(7, most - 1)))
    lengths = np.array([prompts.shape[1], max(prompts.shape[1] - 3, 1), 1])
    first = Probe(arrays(prompts, lengths, 0, empty_past(cache, 3)), "batch=3, prompts of unequal lengths")
    step = _step(model, cache)
    second = arrays(_tokens(model, (3, 1)), lengths + 1, lengths, _past(step, first))
    one = Probe(arrays(prompts[:1], lengths[:1], 0, empty_past(cache, 1)), "batch=1, a prompt")
    more = max(min(3, most - prompts.shape[1]), 1)
    third = arrays(_tokens(model, (1, more)), lengths[:1] + more, lengths[:1], _past(step, one))
    return [first, one, Probe(second, "batch=3, one token"), Probe(third, f"batch=1, {more} more tokens")]


def _past(step: Any, probe: Probe) -> dict[str, Any]:
    outputs = step({_plain(name): tf.constant(array) for name, array in probe.inputs.items()})
    return past_of({name: tensor.numpy() for name, tensor in outputs.items()}, _plain)


def _tokens(model: Any, shape: tuple[int, ...]) -> np.ndarray:
    random = np.random.default_rng(zlib.crc32(f"genai {shape}".encode()))
    return random.integers(0, model.vocabulary_size, shape)


def empty_past(cache: KeyValueCache, batch: int, rename: Callable[[str], str] | None = None) -> dict[str, np.ndarray]:
    """Returns the empty past: dict of name to array."""
    nothing = np.zeros((batch, cache.num_heads, 0, cache.head_dim), "float32")
    rename = rename or _plain
    return {rename(past.format(layer)): nothing for layer in range(len(cache.paths)) for past in PAST}


def past_of(outputs: dict[str, Any], rename: Callable[[str], str] = str) -> dict[str, Any]:
    """Returns the present of a step as the past of the next step."""
    presents = [name for name in outputs if name.startswith("present.")]
    return {rename(name.replace("present", "past_key_values", 1)): outputs[name] for name in presents}


def arrays(token_ids: np.ndarray, lengths: Any, start: Any, past: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
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


def with_dots(spec: ExportSpec, path: pathlib.Path) -> ExportSpec:
    """Renames the inputs of a written file and of its spec to names with dots, which TensorFlow does not allow.

    Args:
        spec: `ExportSpec` of `genai_spec`, traced.
        path: `pathlib.Path` of the ONNX file, which is rewritten.

    Returns:
        An `ExportSpec` of the same signature under the file's names.
    """
    signature = spec.signatures[SIGNATURE]
    layers = (len(signature.inputs) - 3) // 2
    names = {_plain(past.format(layer)): past.format(layer) for layer in range(layers) for past in PAST}

    def renamed(name: str) -> str:
        return names.get(name, name)

    model = onnx.load(str(path), load_external_data=False)
    for graph in all_graphs(model.graph):
        for node in graph.node:
            node.input[:] = [renamed(name) for name in node.input]
    for value in model.graph.input:
        value.name = renamed(value.name)
    onnx.save(model, str(path))
    inputs = tuple(dataclasses.replace(each, name=renamed(each.name)) for each in signature.inputs)
    probes = [
        dataclasses.replace(probe, inputs={renamed(name): array for name, array in probe.inputs.items()})
        for probe in signature.probes
    ]
    return dataclasses.replace(
        spec, signatures={SIGNATURE: dataclasses.replace(signature, inputs=inputs, probes=probes)}
    )


def _plain(name: str) -> str:
    return name.replace(".", "_")
