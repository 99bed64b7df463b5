"""Rules that change what `Attention` is handed: scales, transposes and repeated heads become its options."""

# The parameters of a pattern are its variables: those of a variant are others.
# pyright: reportIncompatibleMethodOverride=false

from __future__ import annotations

import onnx_ir as ir
from onnxscript.rewriter import MatchContext

from keras_transformer.export.onnx.passes.shapes.integers import constant, known_sizes, sizes_of
from keras_transformer.export.onnx.rewrites.rule import SWAP, OperatorMaker, Rule, attributes_of, node_of, scalar


class ScaleIntoAttention(Rule):
    """A query multiplied by a constant, as the scale of the operator."""

    def pattern(self, op: OperatorMaker, query: ir.Value, factor: ir.Value, key: ir.Value, value: ir.Value) -> ir.Value:
        return op.Attention(op.Mul(query, factor), key, value, _allow_other_inputs=True, _outputs=["attended"])

    def check(self, context: MatchContext, query: ir.Value, factor: ir.Value, **_: object) -> bool:
        return scalar(factor) is not None and sizes_of(query) is not None and scalar(factor) > 0

    def rewrite(
        self, op: OperatorMaker, query: ir.Value, factor: ir.Value, key: ir.Value, value: ir.Value, attended: ir.Value
    ) -> ir.Value:
        node = node_of(attended)
        scale = node.attributes.get_float("scale") * scalar(factor)
        return op.Attention(query, key, value, *node.inputs[3:], scale=scale)


class ScaleThroughTranspose(Rule):
    """`Transpose(x · c)` as `Transpose(x) · c` where an `Attention` can absorb the factor."""

    def pattern(self, op: OperatorMaker, x: ir.Value, factor: ir.Value) -> ir.Value:
        return op.Transpose(op.Mul(x, factor), _outputs=["transposed"])

    def check(self, context: MatchContext, x: ir.Value, factor: ir.Value, transposed: ir.Value) -> bool:
        feeds = all(node.op_type == "Attention" and place == 0 for node, place in transposed.uses())
        return feeds and bool(transposed.uses()) and scalar(factor) is not None and sizes_of(x) is not None

    def rewrite(self, op: OperatorMaker, x: ir.Value, factor: ir.Value, transposed: ir.Value) -> ir.Value:
        return op.Mul(op.Transpose(x, perm=node_of(transposed).attributes.get_ints("perm")), factor)


class TokensFirst(Rule):
    """`Attention` between transposes as `Attention` of rank 3, whose inputs are `(B, T, N · H)`."""

    def attention(self, op: OperatorMaker, query: ir.Value, key: ir.Value, value: ir.Value) -> ir.Value:
        return op.Attention(
            op.Transpose(query, perm=SWAP),
            op.Transpose(key, perm=SWAP),
            op.Transpose(value, perm=SWAP),
            _allow_other_inputs=True,
            _outputs=["attended"],
        )

    def pattern(self, op: OperatorMaker, query: ir.Value, key: ir.Value, value: ir.Value) -> ir.Value:
        return op.Transpose(self.attention(op, query, key, value), perm=SWAP)

    def check(self, context: MatchContext, query: ir.Value, key: ir.Value, value: ir.Value, attended: ir.Value) -> bool:
        shapes = [sizes_of(each) for each in (query, key, value)]
        return all(shape is not None and all(isinstance(size, int) for size in shape[2:]) for shape in shapes)

    def rewrite(
        self,
        op: OperatorMaker,
        query: ir.Value,
        key: ir.Value,
        value: ir.Value,
        attended: ir.Value,
        seen: ir.Value | None = None,
    ) -> ir.Value:
        node, heads = node_of(attended), known_sizes(query)[2]
        flat = [op.Reshape(each, self.ints(op, 0, 0, -1)) for each in (query, key, value)]
        found = op.Attention(
            *flat,
            *node.inputs[3:],
            q_num_heads=heads,
            kv_num_heads=known_sizes(key)[2],
            scale=node.attributes.get_float("scale"),
        )
        if seen is not None:
            found = op.Mul(found, op.Squeeze(seen, self.ints(op, 1)))
        return op.Reshape(found, self.ints(op, 0, 0, heads, known_sizes(value)[3]))


class TokensFirstMasked(TokensFirst):
    """The same where queries without a visible key are set to zero in between, by `seen` `(B, 1, T | 1, 1)`."""

    def pattern(self, op: OperatorMaker, query: ir.Value, key: ir.Value, value: ir.Value, seen: ir.Value) -> ir.Value:
        return op.Transpose(op.Mul(self.attention(op, query, key, value), seen), perm=SWAP)

    def check(
        self, context: MatchContext, query: ir.Value, key: ir.Value, value: ir.Value, attended: ir.Value, seen: ir.Value
    ) -> bool:
        sizes = sizes_of(seen)
        is_of_queries = sizes is not None and len(sizes) == 4 and sizes[1] == sizes[3] == 1
        return is_of_queries and super().check(context, query, key, value, attended)


class RepeatedHeads(Rule):
    """Grouped queries without repeated keys and values."""

    def pattern(
        self,
        op: OperatorMaker,
        query: ir.Value,
        key: ir.Value,
        value: ir.Value,
        repeats: ir.Value,
        same_repeats: ir.Value,
        shape: ir.Value,
        same_shape: ir.Value,
    ) -> ir.Value:
        keys = op.Reshape(op.Tile(key, repeats), shape)
        values = op.Reshape(op.Tile(value, same_repeats), same_shape)
        return op.Attention(query, keys, values, _allow_other_inputs=True, _outputs=["attended"])

    def check(
        self,
        context: MatchContext,
        key: ir.Value,
        value: ir.Value,
        repeats: ir.Value,
        same_repeats: ir.Value,
        attended: ir.Value,
        **_: object,
    ) -> bool:
        heads = node_of(attended).attributes.get_int("kv_num_heads", 0)
        return self._is_repeated(key, repeats, heads) and self._is_repeated(value, same_repeats, heads)

    @staticmethod
    def _is_repeated(value, repeats, heads):
        """Whether heads `(B, S, K, 1, H)` are repeated to `heads` heads."""
        sizes, counts = sizes_of(value), constant(repeats)
        if sizes is None or len(sizes) != 5 or sizes[3] != 1 or counts is None or not isinstance(sizes[4], int):
            return False
        return isinstance(sizes[2], int) and counts.tolist() == [1, 1, 1, heads / sizes[2], 1]

    def rewrite(
        self, op: OperatorMaker, query: ir.Value, key: ir.Value, value: ir.Value, attended: ir.Value, **_: object
    ) -> ir.Value:
        node = node_of(attended)
        flat = [
            op.Reshape(each, self.ints(op, 0, 0, known_sizes(each)[2] * known_sizes(each)[4])) for each in (key, value)
        ]
        options = attributes_of(attended) | {"kv_num_heads": known_sizes(key)[2]}
        return op.Attention(query, *flat, *node.inputs[3:], **options)
