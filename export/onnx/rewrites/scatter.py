"""A rule that fuses the update of a key/value cache into `TensorScatter` (opset 24)."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from onnxscript.rewriter import MatchContext

from keras_transformer.export.onnx.options import OnnxOptions
from keras_transformer.export.onnx.passes.shapes.dims import Dims
from keras_transformer.export.onnx.passes.shapes.integers import constant, known_sizes, sizes_of
from keras_transformer.export.onnx.passes.shapes.symbolic import multiply
from keras_transformer.export.onnx.rewrites.rule import OperatorMaker, Rule, RuleSet, node_of, scalar

_MOVES = ("Reshape", "Unsqueeze", "Squeeze", "Cast", "Identity")


class TensorScatter(Rule):
    """`ScatterND` to every row, every head and the slots from each row's index on, in this order.

    `past` is `(B, K, L, H)`, the indices are `(B · T · K, 3)`, and the update is `(B · T · K, H)`.
    """

    def pattern(self, op: OperatorMaker, past: ir.Value, indices: ir.Value, update: ir.Value) -> ir.Value:
        return op.ScatterND(past, indices, update, _outputs=["present"])

    def check(
        self, context: MatchContext, past: ir.Value, indices: ir.Value, update: ir.Value, present: ir.Value
    ) -> bool:
        sizes, rows = sizes_of(past), sizes_of(update)
        plain = node_of(present).attributes.get_string("reduction", "none") == "none"
        if sizes is None or len(sizes) != 4 or not all(isinstance(sizes[axis], int) for axis in (1, 3)) or not plain:
            return False
        grids = _grids(indices, sizes)
        if grids is None or rows != [multiply(*known_sizes(grids[0])), sizes[3]]:
            return False
        return self._start(grids, sizes) is not None

    def _start(self, grids, sizes):
        """The index `(B,)` at which each row is written, 0 for the first slot, or None if the indices are others."""
        rows, heads, slots = (_only_addend(grid) for grid in grids)
        batch, length, num_heads = known_sizes(grids[0])
        order = constant(heads)
        if not self._counts(rows, batch, [batch, 1, 1]) or order is None or slots is None:
            return None
        if not np.array_equal(order, np.arange(num_heads).reshape(1, 1, -1)):
            return None
        return self._first_slot(slots, batch, length)

    def _first_slot(self, slots, batch, length):
        if known_sizes(slots) == [1, length, 1] and self._counts(slots, length, [1, length, 1]):
            return 0
        if known_sizes(slots) != [batch, length, 1]:
            return None
        node = _origin(slots).producer()
        if length != 1:
            if node is None or node.op_type != "Add":
                return None
            parts = [each for each in node.inputs if not self._counts(each, length, [1, length])]
            if len(parts) != 1 or known_sizes(parts[0]) != [batch, 1]:
                return None
            slots = parts[0]
        index = _origin(slots)
        return index if known_sizes(index) == [batch] else None

    def _counts(self, value, count, sizes):
        """Whether a value has these sizes and contains 0, 1, ..., count - 1."""
        if value is None or sizes_of(value) != sizes:
            return False
        array, node = constant(value), _origin(value).producer()
        if array is not None:
            return np.array_equal(array.reshape(-1), np.arange(array.size))
        if node is None or node.op_type != "Range" or scalar(node.inputs[0]) != 0 or scalar(node.inputs[2]) != 1:
            return False
        return self.dims.numbers(node.inputs[1]) == count

    def rewrite(
        self, op: OperatorMaker, past: ir.Value, indices: ir.Value, update: ir.Value, present: ir.Value
    ) -> ir.Value | None:
        sizes = known_sizes(past)
        grids = _grids(indices, sizes)
        if grids is None:
            return None
        batch, length, num_heads = known_sizes(grids[0])
        target = self.target(op, [batch, length, num_heads, sizes[3]])
        if target is None:
            return None
        update = op.Transpose(op.Reshape(update, target), perm=[0, 2, 1, 3])
        start = self._start(grids, sizes)
        start = () if isinstance(start, int) else (op.Cast(start, to=7),)
        return op.TensorScatter(past, update, *start, axis=2, mode="linear")


def _grids(indices, sizes):
    """The three columns of indices as grids `(B, T, K)`, or None."""
    node = _origin(indices).producer()
    if (
        node is None
        or node.op_type != "Concat"
        or node.attributes.get_int("axis") not in (1, -1)
        or len(node.inputs) != 3
    ):
        return None
    grids = [_flattened(column) for column in node.inputs]
    shapes = [None if grid is None else sizes_of(grid) for grid in grids]
    whole = next((shape for shape in shapes if shape is not None), None)
    if whole is None or any(shape != whole for shape in shapes) or len(whole) != 3:
        return None
    return grids if (whole[0], whole[2]) == (sizes[0], sizes[1]) else None


def _flattened(column):
    """The grid that was flattened to a column `(B · T · K, 1)`, or None."""
    value = _origin(column)
    sizes, listed = sizes_of(value), sizes_of(column)
    return value if sizes is not None and listed == [multiply(*sizes), 1] else None


def _only_addend(value):
    """The only term of a sum that is not zero, or None."""
    terms, found = [value], []
    while terms:
        term = terms.pop()
        node = term.producer()
        if node is not None and node.op_type == "Add":
            terms.extend(node.inputs)
        elif not _is_zero(term):
            found.append(term)
    return found[0] if len(found) == 1 else None


def _is_zero(value):
    array, node = constant(value), value.producer()
    if array is not None:
        return not array.any()
    return node is not None and node.op_type == "Mul" and any(scalar(factor) == 0 for factor in node.inputs)


def _origin(value):
    """The value before reshapes and casts."""
    while value.producer() is not None and value.producer().op_type in _MOVES:
        value = value.producer().inputs[0]
    return value


def scatter_rules(dims: Dims, options: OnnxOptions) -> list[RuleSet]:
    """Returns the rule for cache updates."""
    return [RuleSet([TensorScatter(dims)])]
