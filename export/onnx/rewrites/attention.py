"""Rules that fuse matrix products around a softmax into `Attention`."""

# The parameters of a pattern are its variables: those of a variant are others.
# pyright: reportIncompatibleMethodOverride=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx_ir as ir
from onnxscript.rewriter import MatchContext

from keras_transformer.export.onnx.options import OnnxOptions
from keras_transformer.export.onnx.passes.shapes.dims import Dims
from keras_transformer.export.onnx.passes.shapes.integers import known_sizes, shapes_of, sizes_of
from keras_transformer.export.onnx.passes.shapes.symbolic import multiply
from keras_transformer.export.onnx.rewrites.attention_operands import (
    RepeatedHeads,
    ScaleIntoAttention,
    ScaleThroughTranspose,
    TokensFirst,
    TokensFirstMasked,
)
from keras_transformer.export.onnx.rewrites.rule import OperatorMaker, Rule, RuleSet, is_float, node_of


class Attention(Rule):
    """`softmax(q kᵀ + bias) v` of rank 4, heads before tokens."""

    def pattern(self, op: OperatorMaker, query: ir.Value, key: ir.Value, value: ir.Value, bias: ir.Value) -> ir.Value:
        return op.MatMul(op.Softmax(op.Add(op.MatMul(query, key), bias), _outputs=["weights"]), value)

    def check(
        self,
        context: MatchContext,
        query: ir.Value,
        key: ir.Value,
        value: ir.Value,
        weights: ir.Value,
        bias: ir.Value | None = None,
    ) -> bool:
        if node_of(weights).attributes.get_int("axis", -1) not in (-1, 3):
            return False
        shapes = shapes_of((query, key, value), rank=4)
        if shapes is None or not is_float(query):
            return False
        (batch, heads, _, width), (key_batch, key_heads, key_width, length), (*same, value_length, _) = shapes
        fits = [batch, heads] == [key_batch, key_heads] == same and width == key_width and length == value_length
        # The number and width of heads are fixed, unlike those of a product over tokens.
        return fits and isinstance(heads, int) and isinstance(width, int) and self._is_valid_bias(shapes, bias)

    @staticmethod
    def _is_valid_bias(shapes, bias):
        (batch, heads, queries, _), (_, _, _, keys), _ = shapes
        sizes = sizes_of(bias)
        if bias is None:
            return True
        if sizes is None or len(sizes) != 4 or not is_float(bias):
            return False
        return all(size in (1, whole) for size, whole in zip(sizes, (batch, heads, queries, keys), strict=True))

    def rewrite(
        self,
        op: OperatorMaker,
        query: ir.Value,
        key: ir.Value,
        value: ir.Value,
        weights: ir.Value,
        bias: ir.Value | None = None,
    ) -> ir.Value:
        key = op.Transpose(key, perm=[0, 1, 3, 2])
        mask = () if bias is None else (self._expanded_bias(op, bias, query, key),)
        return op.Attention(query, key, value, *mask, scale=1.0)

    def _expanded_bias(self, op, bias, query, key):
        """The bias, expanded to all queries and keys: the operator broadcasts neither."""
        sizes, queries = known_sizes(bias), known_sizes(query)[2]
        if sizes[2] == queries and sizes[3] != 1:
            return bias
        keys = 1 if sizes[3] != 1 else None
        tensor = self.dims.shape_tensor(op, [1, 1, queries, 1]) if keys else None
        if tensor is None:
            last = self.ints(op, 1) if keys else op.Shape(key, start=2, end=3)
            tensor = op.Concat(self.ints(op, 1, 1), op.Shape(query, start=2, end=3), last, axis=0)
        return op.Expand(bias, tensor)


class AttentionWithoutBias(Attention):
    """`softmax(q kᵀ) v`."""

    def pattern(self, op: OperatorMaker, query: ir.Value, key: ir.Value, value: ir.Value) -> ir.Value:
        return op.MatMul(op.Softmax(op.MatMul(query, key), _outputs=["weights"]), value)


class GroupedAttention(Attention):
    """`Attention` of grouped query heads, where heads that share a key are folded into the length for one matrix product."""

    def pattern(
        self,
        op: OperatorMaker,
        query: ir.Value,
        key: ir.Value,
        value: ir.Value,
        bias: ir.Value,
        folded: ir.Value,
        unfolded: ir.Value,
        refolded: ir.Value,
        last: ir.Value,
    ) -> ir.Value:
        weights = op.Softmax(op.Add(self.scores(op, query, key, folded, unfolded), bias), _outputs=["weights"])
        return self.attend_values(op, weights, value, refolded, last)

    def scores(
        self, op: OperatorMaker, query: ir.Value, key: ir.Value, folded: ir.Value, unfolded: ir.Value
    ) -> ir.Value:
        return op.Reshape(op.MatMul(op.Reshape(query, folded, _outputs=["queries"]), key), unfolded)

    def attend_values(
        self, op: OperatorMaker, weights: ir.Value, value: ir.Value, refolded: ir.Value, last: ir.Value
    ) -> ir.Value:
        return op.Reshape(
            op.MatMul(op.Reshape(weights, refolded, _outputs=["again"]), value), last, _outputs=["result"]
        )

    def check(
        self,
        context: MatchContext,
        queries: ir.Value,
        key: ir.Value,
        value: ir.Value,
        weights: ir.Value,
        again: ir.Value,
        result: ir.Value,
        bias: ir.Value | None = None,
        **rest: object,
    ) -> bool:
        shapes = shapes_of((queries, key, value, weights, again), rank=4)
        if shapes is None or sizes_of(result) is None:
            return False
        (batch, key_heads, _, width), (*_, keys), (*_, value_width), (_, heads, length, _), _ = shapes
        if not all(isinstance(size, int) for size in (heads, key_heads, width)) or heads % key_heads:
            return False
        rows = multiply(heads // key_heads, length)
        expected = [
            [batch, key_heads, rows, width],
            [batch, key_heads, width, keys],
            [batch, key_heads, keys, value_width],
        ]
        expected += [[batch, heads, length, keys], [batch, key_heads, rows, keys]]
        plain = [batch, heads, length, width], *shapes[1:3]
        return shapes == expected and is_float(queries) and self._is_valid_bias(plain, bias)

    def rewrite(
        self,
        op: Any,
        query: ir.Value,
        key: ir.Value,
        value: ir.Value,
        queries: ir.Value,
        weights: ir.Value,
        result: ir.Value,
        bias: ir.Value | None = None,
        **_: object,
    ) -> ir.Value | None:
        # All these shapes have the same memory layout.
        batch, heads, length = known_sizes(weights)[:3]
        targets = self.target(op, [batch, heads, length, known_sizes(queries)[3]]), self.target(op, known_sizes(result))
        if None in targets:
            return None
        unfolded = op.Reshape(query, targets[0])
        unfolded.shape, unfolded.dtype = ir.Shape([batch, heads, length, known_sizes(queries)[3]]), queries.dtype
        return op.Reshape(super().rewrite(op, unfolded, key, value, weights, bias), targets[1])


class GroupedAttentionWithoutBias(GroupedAttention):
    """The same without a bias."""

    def pattern(
        self,
        op: OperatorMaker,
        query: ir.Value,
        key: ir.Value,
        value: ir.Value,
        folded: ir.Value,
        unfolded: ir.Value,
        refolded: ir.Value,
        last: ir.Value,
    ) -> ir.Value:
        weights = op.Softmax(self.scores(op, query, key, folded, unfolded), _outputs=["weights"])
        return self.attend_values(op, weights, value, refolded, last)


def attention_rules(dims: Dims, options: OnnxOptions) -> list[RuleSet]:
    """Returns the rules for `Attention`."""
    rules: list[Callable[[Dims], Rule]]
    rules = [Attention, AttentionWithoutBias, GroupedAttention, GroupedAttentionWithoutBias]
    rules += [TokensFirst, TokensFirstMasked, ScaleThroughTranspose, ScaleIntoAttention, RepeatedHeads]
    return [RuleSet([rule(dims) for rule in rules], commute=True)]
