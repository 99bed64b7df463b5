"""Rules that fuse matrix products around a softmax into `Attention`, in the layout that runs fastest."""

from collections.abc import Callable
from typing import Any

import onnx_ir as ir

from keras_transformer.export.onnx.options import OnnxOptions
from keras_transformer.export.onnx.rewrites.rule import Rule, RuleSet, attributes_of, is_float, node_of, scalar
from keras_transformer.export.onnx.shapes.dims import Dims
from keras_transformer.export.onnx.shapes.integers import constant, known_sizes, shapes_of, sizes_of
from keras_transformer.export.onnx.shapes.symbolic import multiply

_SWAP = [0, 2, 1, 3]


class Attention(Rule):
    """`softmax(q kᵀ + bias) v` of rank 4, heads before tokens."""

    def pattern(self, op: Any, query: ir.Value, key: ir.Value, value: ir.Value, bias: ir.Value) -> Any:
        return op.MatMul(op.Softmax(op.Add(op.MatMul(query, key), bias), _outputs=["weights"]), value)

    def check(
        self,
        context: Any,
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
        self, op: Any, query: ir.Value, key: ir.Value, value: ir.Value, weights: ir.Value, bias: ir.Value | None = None
    ) -> Any:
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

    def pattern(self, op: Any, query: ir.Value, key: ir.Value, value: ir.Value) -> Any:
        return op.MatMul(op.Softmax(op.MatMul(query, key), _outputs=["weights"]), value)


class GroupedAttention(Attention):
    """`Attention` of grouped query heads, where heads that share a key are folded into the length for one matrix product."""

    def pattern(
        self,
        op: Any,
        query: ir.Value,
        key: ir.Value,
        value: ir.Value,
        bias: ir.Value,
        folded: ir.Value,
        unfolded: ir.Value,
        refolded: ir.Value,
        last: ir.Value,
    ) -> Any:
        weights = op.Softmax(op.Add(self.scores(op, query, key, folded, unfolded), bias), _outputs=["weights"])
        return self.attend_values(op, weights, value, refolded, last)

    def scores(self, op: Any, query: ir.Value, key: ir.Value, folded: ir.Value, unfolded: ir.Value) -> Any:
        return op.Reshape(op.MatMul(op.Reshape(query, folded, _outputs=["queries"]), key), unfolded)

    def attend_values(self, op: Any, weights: ir.Value, value: ir.Value, refolded: ir.Value, last: ir.Value) -> Any:
        return op.Reshape(
            op.MatMul(op.Reshape(weights, refolded, _outputs=["again"]), value), last, _outputs=["result"]
        )

    def check(
        self,
        context: Any,
        queries: ir.Value,
        key: ir.Value,
        value: ir.Value,
        weights: ir.Value,
        again: ir.Value,
        result: ir.Value,
        bias: ir.Value | None = None,
        **rest: Any,
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
        **_: Any,
    ) -> Any:
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
        op: Any,
        query: ir.Value,
        key: ir.Value,
        value: ir.Value,
        folded: ir.Value,
        unfolded: ir.Value,
        refolded: ir.Value,
        last: ir.Value,
    ) -> Any:
        weights = op.Softmax(self.scores(op, query, key, folded, unfolded), _outputs=["weights"])
        return self.attend_values(op, weights, value, refolded, last)


class ScaleIntoAttention(Rule):
    """A query multiplied by a constant, as the scale of the operator."""

    def pattern(self, op: Any, query: ir.Value, factor: ir.Value, key: ir.Value, value: ir.Value) -> Any:
        return op.Attention(op.Mul(query, factor), key, value, _allow_other_inputs=True, _outputs=["attended"])

    def check(self, context: Any, query: ir.Value, factor: ir.Value, **_: Any) -> bool:
        return scalar(factor) is not None and sizes_of(query) is not None and scalar(factor) > 0

    def rewrite(
        self, op: Any, query: ir.Value, factor: ir.Value, key: ir.Value, value: ir.Value, attended: ir.Value
    ) -> Any:
        node = node_of(attended)
        scale = node.attributes.get_float("scale") * scalar(factor)
        return op.Attention(query, key, value, *node.inputs[3:], scale=scale)


class ScaleThroughTranspose(Rule):
    """`Transpose(x · c)` as `Transpose(x) · c` where an `Attention` can absorb the factor."""

    def pattern(self, op: Any, x: ir.Value, factor: ir.Value) -> Any:
        return op.Transpose(op.Mul(x, factor), _outputs=["transposed"])

    def check(self, context: Any, x: ir.Value, factor: ir.Value, transposed: ir.Value) -> bool:
        feeds = all(node.op_type == "Attention" and place == 0 for node, place in transposed.uses())
        return feeds and bool(transposed.uses()) and scalar(factor) is not None and sizes_of(x) is not None

    def rewrite(self, op: Any, x: ir.Value, factor: ir.Value, transposed: ir.Value) -> Any:
        return op.Mul(op.Transpose(x, perm=node_of(transposed).attributes.get_ints("perm")), factor)


class TokensFirst(Rule):
    """`Attention` between transposes as `Attention` of rank 3, whose inputs are `(B, T, N · H)`."""

    def attention(self, op: Any, query: ir.Value, key: ir.Value, value: ir.Value) -> Any:
        return op.Attention(
            op.Transpose(query, perm=_SWAP),
            op.Transpose(key, perm=_SWAP),
            op.Transpose(value, perm=_SWAP),
            _allow_other_inputs=True,
            _outputs=["attended"],
        )

    def pattern(self, op: Any, query: ir.Value, key: ir.Value, value: ir.Value) -> Any:
        return op.Transpose(self.attention(op, query, key, value), perm=_SWAP)

    def check(self, context: Any, query: ir.Value, key: ir.Value, value: ir.Value, attended: ir.Value) -> bool:
        shapes = [sizes_of(each) for each in (query, key, value)]
        return all(shape is not None and all(isinstance(size, int) for size in shape[2:]) for shape in shapes)

    def rewrite(
        self,
        op: Any,
        query: ir.Value,
        key: ir.Value,
        value: ir.Value,
        attended: ir.Value,
        seen: ir.Value | None = None,
    ) -> Any:
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

    def pattern(self, op: Any, query: ir.Value, key: ir.Value, value: ir.Value, seen: ir.Value) -> Any:
        return op.Transpose(op.Mul(self.attention(op, query, key, value), seen), perm=_SWAP)

    def check(
        self, context: Any, query: ir.Value, key: ir.Value, value: ir.Value, attended: ir.Value, seen: ir.Value
    ) -> bool:
        sizes = sizes_of(seen)
        is_of_queries = sizes is not None and len(sizes) == 4 and sizes[1] == sizes[3] == 1
        return is_of_queries and super().check(context, query, key, value, attended)


class RepeatedHeads(Rule):
    """Grouped queries without repeated keys and values."""

    def pattern(
        self,
        op: Any,
        query: ir.Value,
        key: ir.Value,
        value: ir.Value,
        repeats: ir.Value,
        same_repeats: ir.Value,
        shape: ir.Value,
        same_shape: ir.Value,
    ) -> Any:
        keys = op.Reshape(op.Tile(key, repeats), shape)
        values = op.Reshape(op.Tile(value, same_repeats), same_shape)
        return op.Attention(query, keys, values, _allow_other_inputs=True, _outputs=["attended"])

    def check(
        self,
        context: Any,
        key: ir.Value,
        value: ir.Value,
        repeats: ir.Value,
        same_repeats: ir.Value,
        attended: ir.Value,
        **_: Any,
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

    def rewrite(self, op: Any, query: ir.Value, key: ir.Value, value: ir.Value, attended: ir.Value, **_: Any) -> Any:
        node = node_of(attended)
        flat = [
            op.Reshape(each, self.ints(op, 0, 0, known_sizes(each)[2] * known_sizes(each)[4])) for each in (key, value)
        ]
        options = attributes_of(attended) | {"kv_num_heads": known_sizes(key)[2]}
        return op.Attention(query, *flat, *node.inputs[3:], **options)


def attention_rules(dims: Dims, options: OnnxOptions) -> list[RuleSet]:
    """Returns the rules for `Attention`."""
    rules: list[Callable[[Dims], Rule]]
    rules = [Attention, AttentionWithoutBias, GroupedAttention, GroupedAttentionWithoutBias]
    rules += [TokensFirst, TokensFirstMasked, ScaleThroughTranspose, ScaleIntoAttention, RepeatedHeads]
    return [RuleSet([rule(dims) for rule in rules], commute=True)]
