"""What a graph writes into a key/value cache, and at which slots: proven from its integers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from keras_transformer.export.onnx.passes.shapes.dims import Dims
from keras_transformer.export.onnx.passes.shapes.integers import Sizes, constant, known_sizes, sizes_of
from keras_transformer.export.onnx.passes.shapes.symbolic import Size, multiply
from keras_transformer.export.onnx.rewrites.rule import scalar

_MOVES = ("Reshape", "Unsqueeze", "Squeeze", "Cast", "Identity")


class CacheUpdate(NamedTuple):
    """New keys or values in a cache.

    `past` is `(B, K, L, H)`. The `update` `(B · T · K, H)` is written to every row, to every head, and to T slots from the
    `start` `(B,)` of each row on, or from the first slot on if that is 0.
    """

    past: ir.Value
    update: ir.Value
    start: ir.Value | int
    batch: Size
    length: Size

    def target(self, width: int) -> Sizes:
        """The sizes of the update with the features of `width` heads as its last axis."""
        sizes = known_sizes(self.past)
        return [self.batch, self.length, width, sizes[3]]


class Slots:
    """Proofs about the slots of a cache.

    Args:
        dims: `Dims` of the graph.
    """

    def __init__(self, dims: Dims) -> None:
        self._dims = dims

    def update(self, present: ir.Value | None) -> CacheUpdate | None:
        """Returns the update that a `ScatterND` makes, or None for other values."""
        node = None if present is None else present.producer()
        if node is None or node.op_type != "ScatterND" or node.attributes.get_string("reduction", "none") != "none":
            return None
        past, indices, update = node.inputs
        sizes, rows = sizes_of(past), sizes_of(update)
        if past is None or update is None or sizes is None or len(sizes) != 4:
            return None
        if not all(isinstance(sizes[axis], int) for axis in (1, 3)):
            return None
        grids = _grids(indices, sizes)
        if grids is None or rows != [multiply(*known_sizes(grids[0])), sizes[3]]:
            return None
        start, (batch, length, _) = self._start(grids), known_sizes(grids[0])
        return None if start is None else CacheUpdate(past, update, start, batch, length)

    def _start(self, grids: list[ir.Value]) -> ir.Value | int | None:
        rows, heads, slots = (_only_addend(grid) for grid in grids)
        batch, length, num_heads = known_sizes(grids[0])
        order = constant(heads)
        if not self.counts(rows, batch, [batch, 1, 1]) or order is None or slots is None:
            return None
        if not np.array_equal(order, np.arange(num_heads).reshape(1, 1, -1)):
            return None
        return self.first(slots, [batch, length, 1], 1)

    def first(self, value: ir.Value | None, sizes: Sizes, axis: int) -> ir.Value | int | None:
        """Returns where integers that count on from a number in each row begin.

        Args:
            value: integers.
            sizes: those that it must have, with the batch first, and 1 for the axes along which it does not vary; the
                batch may be 1 in the value.
            axis: the axis along which it counts.

        Returns:
            The numbers `(B,)`, 0 if all rows begin with it, or None for other values.
        """
        found, (batch, length) = sizes_of(value), (sizes[0], sizes[axis])
        if value is None or found is None or len(found) != len(sizes) or found[1:] != sizes[1:]:
            return None
        terms = _addends(_origin(value))
        rows = [each for each in terms if self._is_row(each, length)]
        others = [_origin(each) for each in terms if each not in rows]
        if len(rows) != (length != 1) or len(others) > 1:
            return None
        if not others:
            return 0
        return others[0] if [found[0]] == [batch] == sizes_of(others[0]) else None

    def _is_row(self, value: ir.Value, length: Size) -> bool:
        """Whether a value counts from 0 along the last of two axes."""
        return sizes_of(value) in ([1, length], [length]) and self.counts(value, length)

    def counts(self, value: ir.Value | None, count: Size, sizes: Sizes | None = None) -> bool:
        """Whether a value contains 0, 1, ..., count - 1 along one axis, and has these sizes if any are given."""
        found = sizes_of(value)
        if value is None or found is None or (sizes is not None and found != sizes):
            return False
        if [size for size in found if size != 1] != [count] * (count != 1):
            return False
        array, node = constant(value), _origin(value).producer()
        if array is not None:
            return np.array_equal(array.reshape(-1), np.arange(array.size))
        if node is None or node.op_type != "Range" or scalar(node.inputs[0]) != 0 or scalar(node.inputs[2]) != 1:
            return False
        return self._dims.numbers(node.inputs[1]) == count


def _grids(indices: ir.Value | None, sizes: Sizes) -> list[ir.Value] | None:
    """The three columns of indices as grids `(B, T, K)`, or None."""
    node = None if indices is None else _origin(indices).producer()
    if node is None or node.op_type != "Concat" or node.attributes.get_int("axis") not in (1, -1):
        return None
    grids = [_flattened(column) for column in node.inputs if column is not None]
    known = [grid for grid in grids if grid is not None]
    if len(known) != 3 or len(grids) != 3:
        return None
    whole = known_sizes(known[0])
    if any(known_sizes(each) != whole for each in known) or len(whole) != 3:
        return None
    return known if (whole[0], whole[2]) == (sizes[0], sizes[1]) else None


def _flattened(column: ir.Value) -> ir.Value | None:
    """The grid that was flattened to a column `(B · T · K, 1)`, or None."""
    value = _origin(column)
    sizes, listed = sizes_of(value), sizes_of(column)
    return value if sizes is not None and listed == [multiply(*sizes), 1] else None


def _only_addend(value: ir.Value) -> ir.Value | None:
    """The only term of a sum that is not zero, or None."""
    found = _addends(value)
    return found[0] if len(found) == 1 else None


def _addends(value: ir.Value) -> list[ir.Value]:
    """The terms of a sum that are not zero."""
    terms, found = [value], list[ir.Value]()
    while terms:
        term = terms.pop()
        node = term.producer()
        if node is not None and node.op_type == "Add":
            terms.extend(each for each in node.inputs if each is not None)
        elif not _is_zero(term):
            found.append(term)
    return found


def _is_zero(value: ir.Value) -> bool:
    array, node = constant(value), value.producer()
    if array is not None:
        return not array.any()
    return node is not None and node.op_type == "Mul" and any(scalar(factor) == 0 for factor in node.inputs)


def _origin(value: ir.Value) -> ir.Value:
    """The value before reshapes and casts."""
    while (node := value.producer()) is not None and node.op_type in _MOVES and node.inputs[0] is not None:
        value = node.inputs[0]
    return value
