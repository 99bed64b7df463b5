"""The weights of quantized TFLite files beside those of the float files, by the tensors that both graphs compute."""

from __future__ import annotations

import pathlib
from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from keras_transformer.export.data.weights import Dequantized, WeightPair
from keras_transformer.export.tflite.graph import graphs
from keras_transformer.export.tflite.tree import indices, read_file
from keras_transformer.export.tflite.weights.aligned_pairs import aligned_pairs, has_same_tensors
from keras_transformer.export.tflite.weights.dequantize import ConstantReader

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import ModelT

_PRODUCT, _LOOKUPS = "FULLY_CONNECTED", ("GATHER", "EMBEDDING_LOOKUP")


def weight_pairs(source: pathlib.Path, directory: pathlib.Path, files: dict[str, str]) -> Iterator[WeightPair]:
    """Yields the weights in float files with their counterparts in the quantized ones.

    Products and lookups are found by the tensor of their result, other uses by the tensor of the weight.

    Args:
        source: folder with the float files.
        directory: folder with the quantized files.
        files: dict of signature name to the path of a file in both.

    Yields:
        `WeightPair`; what several graphs read from the same buffers is yielded once.
    """
    for path in dict.fromkeys(files.values()):
        yield from tree_pairs(*(read_file(folder / path) for folder in (source, directory)))


def tree_pairs(before: ModelT, after: ModelT) -> Iterator[WeightPair]:
    """Yields the weights in a float object tree with their counterparts in a quantized one; see `weight_pairs`.

    Args:
        before: `ModelT`; the content of a buffer may be an object with `__len__` and `__array__`.
        after: `ModelT` with the same graphs.
    """
    if not has_same_tensors(before, after):
        yield from aligned_pairs(before, after)
        return
    seen: set[Hashable] = set()
    for old, new in zip(graphs(before), graphs(after), strict=True):
        yield from _Pairs(ConstantReader(old), ConstantReader(new), seen).all()


class _Product(NamedTuple):
    """A `FULLY_CONNECTED`: the activations, which it may read in two parts, and its inputs."""

    source: int
    inputs: list[int]


class _Pairs:
    """The pairs of one graph: float, and quantized."""

    def __init__(self, before: ConstantReader, after: ConstantReader, seen: set[Hashable]) -> None:
        self._before, self._after, self._seen = before, after, seen

    def all(self) -> Iterator[WeightPair]:
        graph = self._before.graph
        for operator in graph.subgraph.operators:
            kind, inputs = graph.kind(operator), indices(operator.inputs)
            for position, index in enumerate(inputs):
                if not self._before.is_float(index):
                    continue
                if kind == _PRODUCT and position > 0:
                    yield from self._product(index, int(operator.outputs[0]), position, inputs[0])
                elif kind in _LOOKUPS:
                    yield from self._table(index, int(operator.outputs[0]))
                else:
                    yield from self._pair(index, index)

    def _product(self, index: int, result: int, position: int, source: int) -> Iterator[WeightPair]:
        """The weight or the bias of a product, which may be one of integers, have offsets of blocks, or apart outliers."""
        kind, inputs = self._after.producer(result)
        if kind == "DEQUANTIZE":
            kind, inputs = self._after.producer(inputs[0])
        if kind == _PRODUCT:
            yield from self._pair(index, inputs[position] if position < len(inputs) else -1)
            return
        both = self._whole(result)
        if both is not None and both.source == source:
            # Each part adds half of the bias.
            yield from self._pair(index, both.inputs[position], factor=2 if position == 2 else 1)
            return
        scaled, shifted = self._addends(inputs, source) if kind == "ADD" else (None, None)
        if scaled is None or shifted is None:
            yield from self._pair(index, -1)
        elif position == 2:
            yield from self._pair(index, shifted.inputs[2])
        else:
            offsets = self._offsets(source, shifted)
            yield from self._pair(index, scaled.inputs[1], offsets, digits=self._times(scaled.source))

    def _addends(self, inputs: list[int], source: int) -> tuple[_Product | None, _Product | None]:
        """The product of an activation with codes, and that of the sums of its blocks with offsets."""
        scaled, shifted = (self._whole(each) for each in inputs)
        if scaled is None or self._once(scaled.source) != source:
            return None, None
        return scaled, shifted

    def _whole(self, result: int) -> _Product | None:
        """The product that a tensor is the result of, or whose result it adds the halves of: activations in two parts."""
        kind, inputs = self._after.producer(result)
        if kind == _PRODUCT:
            return _Product(inputs[0], inputs)
        halves = [self._after.producer(each) for each in inputs] if kind == "ADD" else []
        if len(halves) != 2 or halves[0] != halves[1] or halves[0][0] != "SPLIT" or inputs[0] == inputs[1]:
            return None
        kind, inputs = self._after.producer(halves[0][1][1])
        joined, parts = self._after.producer(inputs[0]) if kind == _PRODUCT else ("", [])
        rest, operands = self._after.producer(parts[1]) if joined == "CONCATENATION" else ("", [])
        return _Product(operands[0], inputs) if rest == "SUB" and operands[1] == parts[0] else None

    def _offsets(self, source: int, shifted: _Product) -> tuple[int, int] | None:
        """The tensors of the offsets and of the blocks' ones, if both products read the same activations."""
        kind, sums = self._after.producer(shifted.source)
        return (shifted.inputs[1], sums[1]) if kind == _PRODUCT and sums[0] == source else None

    def _times(self, source: int) -> int:
        """How often activations are beside themselves, for weights of so many digits."""
        kind, inputs = self._after.producer(source)
        return len(inputs) if kind == "CONCATENATION" and len(inputs) == 2 and inputs[0] == inputs[1] else 1

    def _once(self, source: int) -> int:
        """The activations that may be beside themselves."""
        return self._after.producer(source)[1][0] if self._times(source) == 2 else source

    def _table(self, index: int, result: int) -> Iterator[WeightPair]:
        """The table of a lookup of which a tensor is the result, which may have digits, and offsets of blocks."""
        kind, inputs = self._past_reshapes(result)
        offsets = None
        if kind == "ADD":
            (first, rows), (second, moved) = (self._past_reshapes(each) for each in inputs)
            is_sum = (first, second) == ("SUM", "EMBEDDING_LOOKUP")
            kind, inputs = self._past_reshapes(rows[0]) if is_sum else ("", [])
            offsets = (moved[1], -1) if is_sum else None
        source = inputs[{"GATHER": 0, "EMBEDDING_LOOKUP": 1}[kind]] if kind in _LOOKUPS else -1
        digits = 1 if offsets is None or source < 0 else self._after.width(source) // self._before.width(index)
        yield from self._pair(index, source, offsets, digits=digits)

    def _past_reshapes(self, result: int) -> tuple[str, list[int]]:
        """The operator that computed a tensor, before other shapes of it, and its inputs."""
        kind, inputs = self._after.producer(result)
        return self._past_reshapes(inputs[0]) if kind == "RESHAPE" else (kind, inputs)

    def _pair(
        self, index: int, other: int, offsets: tuple[int, int] | None = None, factor: int = 1, digits: int = 1
    ) -> Iterator[WeightPair]:
        tensors = [each for each in (other, *(offsets or ())) if each >= 0]
        key = (self._before.buffers(index), factor, *(self._after.buffers(each) for each in tensors))
        if key in self._seen:
            return
        self._seen.add(key)
        expected = self._before.value(index)
        if expected is not None:
            name = self._before.graph.tensors[index].name.decode()
            found = self._found(other, offsets, digits)
            yield WeightPair(name, expected.values, found and found.scaled(np.float32(factor)))

    def _found(self, other: int, offsets: tuple[int, int] | None, digits: int) -> Dequantized | None:
        found = self._after.value(other)
        if found is not None and digits == 2:
            found = found.added_halves()
        if found is None or offsets is None:
            return found
        by_block, ones = (None if each < 0 else self._after.value(each) for each in offsets)
        if by_block is None:
            return None
        if offsets[1] < 0:  # Rows of a table.
            return found.shifted(by_block.values.repeat(found.values.shape[1] // by_block.values.shape[1], axis=1))
        return None if ones is None else found.shifted(by_block.values @ ones.values)
