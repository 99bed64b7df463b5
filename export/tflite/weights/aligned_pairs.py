"""The weights of files that TensorFlow's quantizer wrote again, beside those of the float files: operators in order."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from operator import methodcaller
from typing import TYPE_CHECKING

from keras_transformer.export.data.weights import WeightPair
from keras_transformer.export.tflite.graph import Graph, graphs
from keras_transformer.export.tflite.tree import indices
from keras_transformer.export.tflite.weights.dequantize import ConstantReader

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import ModelT, OperatorT

_CONVERSIONS = ("QUANTIZE", "DEQUANTIZE")


def has_same_tensors(before: ModelT, after: ModelT) -> bool:
    """Whether the tensors of a float file are in a quantized one, in the same positions and under the same names."""
    pairs = [(old.tensors, new.tensors) for old, new in zip(before.subgraphs, after.subgraphs, strict=True)]
    return all(
        len(old) <= len(new) and all(a.name == b.name for a, b in zip(old, new, strict=False)) for old, new in pairs
    )


def aligned_pairs(before: ModelT, after: ModelT) -> Iterator[WeightPair]:
    """Yields the constants that operators of a float file read, with those of the same operators in a quantized one.

    Args:
        before: `ModelT` of the float file.
        after: `ModelT` of the quantized one, of the same operators in the same order but for conversions.

    Yields:
        `WeightPair`; one without a counterpart for an operator that is in the float file alone.
    """
    for old, new in zip(graphs(before), graphs(after), strict=True):
        first, second = _operators(old), _operators(new)
        kinds = [[each.kind(operator) for operator in operators] for each, operators in ((old, first), (new, second))]
        matcher = difflib.SequenceMatcher(a=kinds[0], b=kinds[1], autojunk=False)
        partner = {a + step: b + step for a, b, count in matcher.get_matching_blocks() for step in range(count)}
        readers = ConstantReader(old), ConstantReader(new)
        for position, operator in enumerate(first):
            other = second[partner[position]] if position in partner else None
            yield from _pairs_of(operator, other, *readers)


def _operators(graph: Graph) -> list[OperatorT]:
    return [each for each in graph.subgraph.operators if graph.kind(each) not in _CONVERSIONS]


def _pairs_of(
    operator: OperatorT, other: OperatorT | None, before: ConstantReader, after: ConstantReader
) -> Iterator[WeightPair]:
    """The constants of one operator."""
    others = () if other is None else indices(other.inputs)
    for position, index in enumerate(indices(operator.inputs)):
        expected = before.value(index) if before.is_float(index) else None
        if expected is None:
            continue
        found = after.value(others[position]) if position < len(others) else None
        if found is not None and found.values.size == expected.values.size:
            found = found.map(methodcaller("reshape", expected.values.shape))
        yield WeightPair(before.graph.name(index), expected.values, found)
