"""Rules that rewrite the matrix products of converted einsums to the form that `attention` matches.

The converter aligns the axes of an einsum in rank 5 and multiplies in rank 3; the rules restore a product of rank 4.
"""

from collections.abc import Callable

import numpy as np
import onnx_ir as ir
from onnxscript.rewriter import RewriteRuleSet

from keras_transformer.export.onnx.options import OnnxOptions
from keras_transformer.export.onnx.rewrites.rule import VECTOR, Rule, is_float, rule_set, scalar
from keras_transformer.export.onnx.shapes.dims import Dims
from keras_transformer.export.onnx.shapes.integers import Sizes, known_sizes, shapes_of, sizes_of
from keras_transformer.export.onnx.shapes.symbolic import multiply

_SWAP = [0, 1, 3, 2]


def _without_ones(sizes: Sizes | None) -> Sizes:
    return [size for size in sizes or () if size != 1]


def _perm(value):
    return list(value.producer().attributes.get_ints("perm") or ())


class ReshapeOfAxes(Rule):
    """`Reshape(Squeeze(x))` or `Reshape(Unsqueeze(x))` as one reshape."""

    def pattern(self, op, x, axes, shape):
        return op.Reshape(getattr(op, self.op_type)(x, axes), shape, _outputs=["result"])

    def check(self, context, x, result, **_):
        return is_float(x) and sizes_of(result) is not None

    def rewrite(self, op, x, result, **_):
        target = self.target(op, known_sizes(result))
        return None if target is None else op.Reshape(x, target)


class AxesOfReshape(ReshapeOfAxes):
    """`Squeeze(Reshape(x))` or `Unsqueeze(Reshape(x))` as one reshape."""

    def pattern(self, op, x, axes, shape):
        return getattr(op, self.op_type)(op.Reshape(x, shape), axes, _outputs=["result"])


class StackOfHalves(Rule):
    """Two tensors stacked before their last axis, and both axes then merged, as a concatenation."""

    def pattern(self, op, first, second, axes, same_axes, shape):
        stacked = op.Concat(op.Unsqueeze(first, axes), op.Unsqueeze(second, same_axes), _outputs=["stacked"])
        return op.Reshape(stacked, shape, _outputs=["result"])

    def check(self, context, first, second, axes, same_axes, stacked, result, **_):
        sizes, whole = sizes_of(first), sizes_of(result)
        if (
            not is_float(first)
            or not sizes
            or whole is None
            or sizes_of(second) != sizes
            or not isinstance(sizes[-1], int)
        ):
            return False
        axes_of_stack = [scalar(axes), scalar(same_axes), stacked.producer().attributes.get_int("axis")]
        before_last = all(place in (len(sizes) - 1, -2) for place in axes_of_stack)
        return before_last and _without_ones(whole) == _without_ones([*sizes[:-1], 2 * sizes[-1]])

    def rewrite(self, op, first, second, result, **_):
        target = self.target(op, known_sizes(result))
        return None if target is None else op.Reshape(op.Concat(first, second, axis=-1), target)


class TransposeOfOnes(Rule):
    """A transpose of rank 5 or more without its axes of size 1."""

    def pattern(self, op, x):
        return op.Transpose(x, _outputs=["transposed"])

    def check(self, context, x, transposed):
        sizes = sizes_of(x)
        return is_float(x) and sizes is not None and len(sizes) > 4 and 1 in sizes and bool(_perm(transposed))

    def rewrite(self, op, x, transposed):
        sizes = known_sizes(x)
        kept = [axis for axis, size in enumerate(sizes) if size != 1]
        targets = [
            self.target(op, each)
            for each in ([sizes[axis] for axis in kept], [sizes[axis] for axis in _perm(transposed)])
        ]
        if None in targets:
            return None
        perm = [kept.index(axis) for axis in _perm(transposed) if axis in kept]
        return op.Reshape(op.Transpose(op.Reshape(x, targets[0]), perm=perm), targets[1])


class ProductOfGroups(Rule):
    """A product of rank 3, whose first axis merges batch and heads, as a product of rank 4."""

    def pattern(self, op, left, right, shape):
        return op.Reshape(op.MatMul(left, right), shape, _outputs=["result"])

    def check(self, context, left, right, shape, result):
        operands, whole = shapes_of((left, right), rank=3), _without_ones(sizes_of(result))
        if operands is None or len(whole) != 4:
            return False
        first, second = operands
        batch, heads, rows, columns = whole
        return isinstance(heads, int) and (first[0], first[1], second) == (
            multiply(batch, heads),
            rows,
            [first[0], first[2], columns],
        )

    def rewrite(self, op, left, right, shape, result):
        batch, heads, rows, columns = _without_ones(known_sizes(result))
        width = known_sizes(left)[2]
        shapes = ([batch, heads, rows, width], [batch, heads, width, columns], known_sizes(result))
        targets = [self.target(op, sizes) for sizes in shapes]
        if None in targets:
            return None
        return op.Reshape(op.MatMul(op.Reshape(left, targets[0]), op.Reshape(right, targets[1])), targets[2])


class GroupsOfTranspose(Rule):
    """An operand whose first axis is split into batch and heads before its transpose, not after."""

    def pattern(self, op, x, shape):
        return op.Reshape(op.Transpose(x, _outputs=["transposed"]), shape, _outputs=["result"])

    def check(self, context, x, shape, transposed, result):
        sizes, whole = sizes_of(x), sizes_of(result)
        if sizes is None or whole is None or len(sizes) != 3 or len(whole) != 4 or _perm(transposed) != [0, 2, 1]:
            return False
        return sizes == [multiply(*whole[:2]), whole[3], whole[2]]

    def rewrite(self, op, x, shape, transposed, result):
        batch, heads, rows, columns = known_sizes(result)
        target = self.target(op, [batch, heads, columns, rows])
        return None if target is None else op.Transpose(op.Reshape(x, target), perm=_SWAP)


class TransposeOfProduct(Rule):
    """`(a b)ᵀ` as `bᵀ aᵀ` where one of them is transposed already."""

    def pattern(self, op, left, right):
        return op.Transpose(op.MatMul(left, right), _outputs=["transposed"])

    def check(self, context, left, right, transposed):
        is_turned = any(
            each.producer() is not None and each.producer().op_type == "Transpose" for each in (left, right)
        )
        ranks = [len(sizes_of(each) or ()) for each in (left, right)]
        return is_turned and ranks == [4, 4] and _perm(transposed) == _SWAP

    def rewrite(self, op, left, right, transposed):
        return op.MatMul(op.Transpose(right, perm=_SWAP), op.Transpose(left, perm=_SWAP))


class ScaleOfScores(Rule):
    """`(q k) · c` as `(q · c) k` before a softmax, for the scale of an `Attention`."""

    def pattern(self, op, query, key, factor):
        return op.Mul(op.MatMul(query, key), factor, _outputs=["scores"])

    def check(self, context, query, key, factor, scores):
        if scalar(factor) is None or any(len(sizes_of(each) or ()) != 4 for each in (query, key)):
            return False
        users = list(scores.consumers())
        users += [user for each in users if each.op_type in ("Add", "Mul") for user in each.outputs[0].consumers()]
        users += [user for each in users if each.op_type == "Add" for user in each.outputs[0].consumers()]
        return any(user.op_type == "Softmax" for user in users)

    def rewrite(self, op, query, key, factor, scores):
        return op.MatMul(op.Mul(query, factor), key)


class BiasOfReshape(Rule):
    """`Reshape(matrix) + bias` of heads as `Reshape(matrix + bias)`."""

    def pattern(self, op, x, shape, bias):
        return op.Add(op.Reshape(x, shape, _outputs=["transposed"]), bias)

    def check(self, context, x, shape, bias, transposed):
        flat, sizes, part = sizes_of(x), sizes_of(transposed), sizes_of(bias)
        if bias.const_value is None or not is_float(x) or flat is None or sizes is None or len(flat) != 2 or not part:
            return False
        return part == sizes[-len(part) :] and multiply(*part) == flat[1] and len(part) < len(sizes) and len(part) > 1

    def rewrite(self, op, x, shape, bias, transposed):
        vector = ir.tensor(np.ascontiguousarray(bias.const_value.numpy().reshape(-1)))
        return op.Reshape(op.Add(x, op.Constant(value=vector, _outputs=[f"{bias.name}{VECTOR}"])), shape)


def einsum_rules(dims: Dims, options: OnnxOptions) -> list[RewriteRuleSet]:
    """Returns the rules for einsums."""
    rules: list[Callable[[Dims], Rule]]
    rules = [StackOfHalves, TransposeOfOnes, ProductOfGroups, GroupsOfTranspose, TransposeOfProduct]
    found: list[Rule]
    found = [rule(dims, each) for each in ("Squeeze", "Unsqueeze") for rule in (ReshapeOfAxes, AxesOfReshape)]
    products: list[Callable[[Dims], Rule]] = [ScaleOfScores, BiasOfReshape]
    return [rule_set(found + [rule(dims) for rule in rules]), rule_set([rule(dims) for rule in products], commute=True)]
