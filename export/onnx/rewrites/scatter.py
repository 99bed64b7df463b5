"""A rule that turns the update of a key/value cache into `TensorScatter` (opset 24)."""

import numpy as np
from onnxscript.rewriter import RewriteRuleSet

from keras_transformer.export.onnx.options import OnnxOptions
from keras_transformer.export.onnx.rewrites.rule import Rule, rule_set, scalar
from keras_transformer.export.onnx.shapes.dims import Dims
from keras_transformer.export.onnx.shapes.integers import constant, sizes_of
from keras_transformer.export.onnx.shapes.symbolic import multiply

_MOVES = ("Reshape", "Unsqueeze", "Squeeze", "Cast", "Identity")


class TensorScatter(Rule):
    """`ScatterND` at every row, every head and the slots that follow each row's index, in this order.

    `past` is `(B, K, L, H)`, the places are `(B · T · K, 3)`, and the update is `(B · T · K, H)`.
    """

    def pattern(self, op, past, places, update):
        return op.ScatterND(past, places, update, _outputs=["present"])

    def check(self, context, past, places, update, present):
        sizes, rows = sizes_of(past), sizes_of(update)
        plain = present.producer().attributes.get_string("reduction", "none") == "none"
        if sizes is None or len(sizes) != 4 or not all(isinstance(sizes[axis], int) for axis in (1, 3)) or not plain:
            return False
        grids = _grids(places, sizes)
        if grids is None or rows != [multiply(*sizes_of(grids[0])), sizes[3]]:
            return False
        return self._start(grids, sizes) is not None

    def _start(self, grids, sizes):
        """The index `(B,)` at which each row is written, 0 for the first slot, or None if these are not such places."""
        rows, heads, slots = (_only_addend(grid) for grid in grids)
        batch, length, num_heads = sizes_of(grids[0])
        order = constant(heads)
        is_grid = self._counts(rows, batch, [batch, 1, 1]) and order is not None and order.shape == (1, 1, num_heads)
        if not is_grid or not np.array_equal(order.reshape(-1), np.arange(num_heads)) or slots is None:
            return None
        return self._first_slot(slots, batch, length)

    def _first_slot(self, slots, batch, length):
        if sizes_of(slots) == [1, length, 1] and self._counts(slots, length, [1, length, 1]):
            return 0
        if sizes_of(slots) != [batch, length, 1]:
            return None
        node = _origin(slots).producer()
        if length != 1:
            if node is None or node.op_type != "Add":
                return None
            parts = [each for each in node.inputs if not self._counts(each, length, [1, length])]
            if len(parts) != 1 or sizes_of(parts[0]) != [batch, 1]:
                return None
            slots = parts[0]
        index = _origin(slots)
        return index if sizes_of(index) == [batch] else None

    def _counts(self, value, count, sizes):
        """Whether a value of these sizes holds 0, 1, ... up to a count."""
        if value is None or sizes_of(value) != sizes:
            return False
        array, node = constant(value), _origin(value).producer()
        if array is not None:
            return np.array_equal(array.reshape(-1), np.arange(array.size))
        if node is None or node.op_type != "Range" or scalar(node.inputs[0]) != 0 or scalar(node.inputs[2]) != 1:
            return False
        return self.dims.numbers(node.inputs[1]) == count

    def rewrite(self, op, past, places, update, present):
        sizes = sizes_of(past)
        grids = _grids(places, sizes)
        batch, length, num_heads = sizes_of(grids[0])
        target = self.target(op, [batch, length, num_heads, sizes[3]])
        if target is None:
            return None
        update = op.Transpose(op.Reshape(update, target), perm=[0, 2, 1, 3])
        start = self._start(grids, sizes)
        start = () if isinstance(start, int) else (op.Cast(start, to=7),)
        return op.TensorScatter(past, update, *start, axis=2, mode="linear")


def _grids(places, sizes):
    """The three columns of places as grids `(B, T, K)`, or None if they are not made of such."""
    node = _origin(places).producer()
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
    """The grid that a column `(B · T · K, 1)` lists, or None."""
    value = _origin(column)
    sizes, listed = sizes_of(value), sizes_of(column)
    return value if sizes is not None and listed == [multiply(*sizes), 1] else None


def _only_addend(value):
    """The one term of a sum that is not zero, or None."""
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
    """What a value is, but for its shape and type."""
    while value.producer() is not None and value.producer().op_type in _MOVES:
        value = value.producer().inputs[0]
    return value


def scatter_rules(dims: Dims, options: OnnxOptions) -> list[RewriteRuleSet]:
    """The rules for a graph whose sizes are known."""
    return [rule_set([TensorScatter(dims)])]
