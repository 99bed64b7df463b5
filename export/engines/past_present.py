"""Caches under the names that several engines share: `past_key_values.0.key` goes in, `present.0.key` comes out."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
import tensorflow as tf

from keras_transformer.export.data.array_spec import ArraySpec
from keras_transformer.export.data.export_spec import ExportSpec, Signature

if TYPE_CHECKING:
    from keras_transformer.export.engines.key_value_cache import KeyValueCache
    from keras_transformer.utils.types import Tensor


PAST, PRESENT = "past_key_values.", "present."
KINDS = ("key", "value")


@dataclasses.dataclass(frozen=True)
class PastPresent:
    """The keys and values of all layers, under their names in the model and in the files.

    Args:
        cache: `KeyValueCache`.
        part: str, for encoder-decoders: "decoder." for the tokens that the decoder has read, "encoder." for the source.

    Example:

    >>> from keras_transformer.export.engines.key_value_cache import KeyValueCache
    >>> next(PastPresent(KeyValueCache(("block",), 2, 4), "decoder.").names())
    ('block_key', 'past_key_values.0.decoder.key', 'present.0.decoder.key')
    """

    cache: KeyValueCache
    part: str = ""

    def names(self) -> Iterator[tuple[str, str, str]]:
        """The names in the cache of `Stepwise`, of the input, and of the output."""
        for layer, pair in enumerate(self.cache.names()):
            for name, kind in zip(pair, KINDS, strict=True):
                own = f"{layer}.{self.part}{kind}"
                yield name, PAST + own, PRESENT + own

    def inputs(self, batch: str = "batch", length: str = "past_length") -> tuple[ArraySpec, ...]:
        """Specs of the inputs, under names that TensorFlow allows.

        Args:
            batch: name of the axis of the batch.
            length: name of the axis of the slots.
        """
        shape, axes = (None, self.cache.num_heads, None, self.cache.head_dim), (batch, None, length, None)
        return tuple(ArraySpec(plain(past), "float32", shape, axes) for _, past, _ in self.names())

    def past(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The inputs by their names in the model."""
        return {name: tensors[plain(past)] for name, past, _ in self.names()}

    def with_slots(self, tensors: Mapping[str, Tensor], count: Tensor) -> dict[str, Tensor]:
        """The inputs by their names in the model, with `count` further slots for new tokens."""
        past = self.past(tensors)
        batch = tf.shape(next(iter(past.values())))[0]
        empty = tf.zeros(tf.stack([batch, self.cache.num_heads, count, self.cache.head_dim]))
        return {name: tf.concat([tensor, empty], axis=2) for name, tensor in past.items()}

    def present(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The outputs, from tensors by their names in the model."""
        return {present: tensors[name] for name, _, present in self.names()}

    def empty(self, batch: int, rename: Callable[[str], str] = str) -> dict[str, np.ndarray]:
        """Inputs without slots."""
        nothing = np.zeros((batch, self.cache.num_heads, 0, self.cache.head_dim), "float32")
        return {rename(past): nothing for _, past, _ in self.names()}

    def next_past(self, outputs: Mapping[str, np.ndarray], rename: Callable[[str], str] = str) -> dict[str, np.ndarray]:
        """The outputs of a step as the inputs of the next."""
        return {rename(past): outputs[present] for _, past, present in self.names()}


def plain(name: str) -> str:
    """A name without dots, which TensorFlow does not allow in names of inputs."""
    return name.replace(".", "_")


def with_dots(spec: ExportSpec, files: Mapping[str, pathlib.Path], caches: tuple[PastPresent, ...]) -> ExportSpec:
    """Renames the inputs of written files and of their spec to the names with dots.

    Args:
        spec: `ExportSpec`, traced.
        files: dict of signature name to the path of its ONNX file, which is rewritten.
        caches: the caches whose inputs are renamed.

    Returns:
        An `ExportSpec` of the same signatures under the files' names.
    """
    names = {plain(past): past for cache in caches for _, past, _ in cache.names()}
    for path in files.values():
        _rename_inputs(path, names)
    signatures = {key: _renamed(signature, names) for key, signature in spec.signatures.items()}
    return dataclasses.replace(spec, signatures=signatures)


def _rename_inputs(path: pathlib.Path, names: Mapping[str, str]) -> None:
    model = ir.load(str(path))
    for value in model.graph.inputs:
        value.name = names.get(value.name or "", value.name)
    ir.save(model, str(path))


def _renamed(signature: Signature, names: Mapping[str, str]) -> Signature:
    inputs = tuple(dataclasses.replace(each, name=names.get(each.name, each.name)) for each in signature.inputs)
    probes = [
        dataclasses.replace(probe, inputs={names.get(name, name): array for name, array in probe.inputs.items()})
        for probe in signature.probes
    ]
    return dataclasses.replace(signature, inputs=inputs, probes=probes, further=[])
