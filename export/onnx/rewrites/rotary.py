"""Rules that fuse rotary position embeddings into `RotaryEmbedding` (opset 23).

The operator gets inputs of rank 3, `(B, T, N · H)`: the oldest supported runtimes rotate a part of a head only there.
"""

# The parameters of a pattern are its variables: those of a variant are others.
# pyright: reportIncompatibleMethodOverride=false

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
from onnxscript.rewriter import MatchContext

from keras_transformer.export.onnx.options import OnnxOptions
from keras_transformer.export.onnx.passes.shapes.dims import Dims
from keras_transformer.export.onnx.passes.shapes.integers import constant, known_sizes, shapes_of, sizes_of
from keras_transformer.export.onnx.rewrites.rule import OperatorMaker, Rule, RuleSet, is_float, node_of, scalar


class RotaryEmbedding(Rule):
    """`x · cos θ + (−b, a) · sin θ` where a and b are the halves of each head x: `Rotary(layout="halves")`."""

    interleaved = 0

    def pattern(self, op: OperatorMaker, x: ir.Value, cos: ir.Value, sin: ir.Value, turn: ir.Value) -> ir.Value:
        return op.Add(op.Mul(x, cos), op.Mul(self.quarter_turn(op, x, turn), sin))

    def quarter_turn(self, op: OperatorMaker, x: ir.Value, turn: ir.Value) -> ir.Value:
        second = op.Slice(x, _allow_other_inputs=True, _outputs=["second"])
        first = op.Slice(x, _allow_other_inputs=True, _outputs=["first"])
        return op.Concat(op.Neg(second), first, _outputs=["quarter"])

    def check(self, context: MatchContext, x: ir.Value, cos: ir.Value, sin: ir.Value, **found: Any) -> bool:
        sizes, (angles, _) = sizes_of(x), cos_sin_angles(cos, sin)
        if not is_float(x) or sizes is None or len(sizes) != 4 or not all(isinstance(size, int) for size in sizes[2:]):
            return False
        (batch, length, _, width), (_, rates) = sizes, _parts(angles)
        if rates is None or rates.size != width or width % 2:
            return False
        fits = sizes_of(angles) in ([batch, length, 1, width], [1, length, 1, width])
        first, second = rates.reshape(-1, 2).T if self.interleaved else rates.reshape(2, -1)
        return fits and np.array_equal(first, second) and self.is_quarter_turn(width, **found)

    def is_quarter_turn(self, width: int, first: ir.Value, second: ir.Value, quarter: ir.Value, **_: object) -> bool:
        is_last = node_of(quarter).attributes.get_int("axis", 0) in (-1, 3)
        return is_last and _bounds(first, width) == (0, width // 2) and _bounds(second, width) == (width // 2, width)

    def rewrite(self, op: OperatorMaker, x: ir.Value, cos: ir.Value, sin: ir.Value, **_: object) -> ir.Value:
        return self.rotated(op, x, x, *cos_sin_angles(cos, sin))

    def rotated(self, op: OperatorMaker, whole: ir.Value, x: ir.Value, angles: Any, factor: Any) -> ir.Value:
        """`whole` `(B, T, N, H)` with its first features rotated: those of x."""
        (_, _, heads, width), rotary_dim = known_sizes(whole), known_sizes(x)[3]
        positions, rates = _parts(angles)
        assert rates is not None  # `check` accepted them.
        rates = rates[::2] if self.interleaved else rates[: rotary_dim // 2]
        angles = op.Mul(positions, op.Constant(value=ir.tensor(np.ascontiguousarray(rates))))
        # Angles without a batch are expanded to all rows.
        target = self.dims.shape_tensor(op, [known_sizes(x)[0], 1, 1])
        if target is None:
            target = op.Concat(op.Shape(x, start=0, end=1), self.ints(op, 1, 1), axis=0)
        waves = [op.Cos(angles), op.Sin(angles)]
        if factor != 1:
            factor = op.Constant(value=ir.tensor(np.float32(factor)))
            waves = [op.Mul(wave, factor) for wave in waves]
        found = op.RotaryEmbedding(
            op.Reshape(whole, self.ints(op, 0, 0, -1)),
            *(op.Expand(wave, target) for wave in waves),
            num_heads=heads,
            interleaved=self.interleaved,
            rotary_embedding_dim=0 if rotary_dim == width else rotary_dim,
        )
        return op.Reshape(found, self.ints(op, 0, 0, heads, width))


class RotaryEmbeddingOfPairs(RotaryEmbedding):
    """The same where features 2i and 2i + 1 are a pair, and the quarter turn is a product with a constant."""

    interleaved = 1

    def quarter_turn(self, op: OperatorMaker, x: ir.Value, turn: ir.Value) -> ir.Value:
        flat = op.Reshape(x, _allow_other_inputs=True, _outputs=["flat"])
        return op.Reshape(op.MatMul(flat, turn), _allow_other_inputs=True, _outputs=["quarter"])

    def is_quarter_turn(self, width: int, flat: ir.Value, turn: ir.Value, quarter: ir.Value, **_: object) -> bool:
        expected = np.kron(np.eye(width // 2), [[0, 1], [-1, 0]])
        found, shapes = constant(turn), shapes_of((flat, quarter))
        if found is None or shapes is None or not np.array_equal(found, expected):
            return False
        return shapes[0][-1:] == [width] == shapes[1][3:]


class RotaryEmbeddingOfSplit(RotaryEmbedding):
    """The same where the halves are outputs of a `Split`, as in KerasHub."""

    def quarter_turn(self, op: Any, x: ir.Value, turn: ir.Value) -> ir.Value:
        first, second = op.Split(x, _outputs=["first", "second"])
        return op.Concat(op.Neg(second), first, _outputs=["quarter"])

    def is_quarter_turn(self, width: int, first: ir.Value, second: ir.Value, quarter: ir.Value, **_: object) -> bool:
        axes = [node_of(value).attributes.get_int("axis", 0) for value in (first, quarter)]
        halves = shapes_of((first, second), rank=4) or [[]]
        return all(axis in (-1, 3) for axis in axes) and all(sizes[3:] == [width // 2] for sizes in halves)


class PartialRotaryEmbedding(RotaryEmbedding):
    """The same where the first features of each head are rotated, and the rest is concatenated."""

    def pattern(self, op: OperatorMaker, whole: ir.Value, cos: ir.Value, sin: ir.Value, turn: ir.Value) -> ir.Value:
        x = op.Slice(whole, _allow_other_inputs=True, _outputs=["x"])
        rest = op.Slice(whole, _allow_other_inputs=True, _outputs=["rest"])
        return op.Concat(super().pattern(op, x, cos, sin, turn), rest, _outputs=["joined"])

    def check(
        self, context: MatchContext, whole: ir.Value, x: ir.Value, rest: ir.Value, joined: ir.Value, **found: Any
    ) -> bool:
        sizes, rotary_dim = sizes_of(whole), (sizes_of(x) or [None])[-1]
        if sizes is None or len(sizes) != 4 or not isinstance(sizes[3], int) or not super().check(context, x, **found):
            return False
        is_last = node_of(joined).attributes.get_int("axis", 0) in (-1, 3)
        return is_last and _bounds(x, sizes[3]) == (0, rotary_dim) and _bounds(rest, sizes[3]) == (rotary_dim, sizes[3])

    def rewrite(
        self, op: OperatorMaker, whole: ir.Value, x: ir.Value, cos: ir.Value, sin: ir.Value, **_: object
    ) -> ir.Value:
        return self.rotated(op, whole, x, *cos_sin_angles(cos, sin))


class PartialRotaryEmbeddingOfPairs(PartialRotaryEmbedding, RotaryEmbeddingOfPairs):
    """The same for pairs."""


def cos_sin_angles(cos: ir.Value, sin: ir.Value) -> tuple[ir.Value | None, float | None]:
    """The common angles of cosine and sine and the common factor, or two None."""
    (kind, angles, factor), (other_kind, other, other_factor) = _angle(cos), _angle(sin)
    is_pair = (kind, other_kind) == ("Cos", "Sin") and angles is other and factor == other_factor
    return (angles, factor) if is_pair else (None, None)


def _angle(value):
    node, factor = value.producer(), 1.0
    if node is not None and node.op_type == "Mul":
        numbers = [scalar(each) for each in node.inputs]
        if numbers.count(None) == 1:
            factor = next(number for number in numbers if number is not None)
            node = node.inputs[numbers.index(None)].producer()
    return (None, None, None) if node is None else (node.op_type, node.inputs[0], factor)


def _parts(angles):
    """Positions `(T, 1)` or `(B, T, 1)` and rates `(H,)` whose product is the angles `(1 | B, T, 1, H)`, or two None."""
    sizes, value = sizes_of(angles), angles
    while value is not None and value.producer() is not None and value.producer().op_type in ("Unsqueeze", "Reshape"):
        value = value.producer().inputs[0]
    node = None if value is None else value.producer()
    found, twice = sizes_of(value), 1
    if node is not None and node.op_type == "Concat" and len(node.inputs) == 2 and node.inputs[0] is node.inputs[1]:
        is_last = node.attributes.get_int("axis") in (-1, len(found or ()) - 1)
        node, twice = node.inputs[0].producer() if is_last else None, 2
    if node is None or node.op_type != "Mul" or sizes is None or len(sizes) != 4:
        return None, None
    positions, rates = node.inputs if constant(node.inputs[0]) is None else node.inputs[::-1]
    array = constant(rates)
    if found is None or [*sizes[:2], sizes[3]] not in (found, [1, *found]):  # More than axes of size 1 were added.
        return None, None
    if array is None or array.size * twice != sizes[3] or sizes_of(positions) != [*found[:-1], 1]:
        return None, None
    return positions, np.tile(array.reshape(-1), twice)


def _bounds(value, width):
    """Start and end of a slice of the last axis of size `width`, or None."""
    inputs = value.producer().inputs
    numbers = [scalar(each) for each in inputs[1:]]
    if len(inputs) < 4 or None in numbers:
        return None
    start, end, axis, *step = numbers
    if axis not in (-1, 3) or step not in ([], [1]):
        return None
    return slice(start, end).indices(width)[:2]


def rotary_rules(dims: Dims, options: OnnxOptions) -> list[RuleSet]:
    """Returns the rules for rotary embeddings, those for a part of each head first."""
    partial = (PartialRotaryEmbedding, PartialRotaryEmbeddingOfPairs)
    whole = (RotaryEmbedding, RotaryEmbeddingOfPairs, RotaryEmbeddingOfSplit)
    return [RuleSet([rule(dims) for rule in rules], commute=True) for rules in (partial, whole)]
