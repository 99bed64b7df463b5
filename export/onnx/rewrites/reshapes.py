"""Rules that remove reshapes and transposes that move no data, and compute projections in rank 2."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir
from onnxscript.rewriter import MatchContext

from keras_transformer.export.onnx.options import OnnxOptions
from keras_transformer.export.onnx.passes.shapes.dims import Dims
from keras_transformer.export.onnx.passes.shapes.integers import constant, known_sizes, sizes_of
from keras_transformer.export.onnx.passes.shapes.symbolic import multiply
from keras_transformer.export.onnx.rewrites.channels_first import has_channels_first, is_turned
from keras_transformer.export.onnx.rewrites.rule import OperatorMaker, Rule, RuleSet, attributes_of, is_float, node_of

_UNARY = ("Gelu", "Relu", "Tanh", "Sigmoid", "Erf", "Neg", "Sqrt", "Exp")
_BINARY = ("Add", "Mul", "Sub")
_NORMS = ("LayerNormalization", "RMSNormalization")


def _perm(value):
    return list(value.producer().attributes.get_ints("perm") or ())


class TransposeOfTranspose(Rule):
    def pattern(self, op: OperatorMaker, x: ir.Value) -> ir.Value:
        return op.Transpose(op.Transpose(x, _outputs=["inner"]), _outputs=["outer"])

    def check(self, context: MatchContext, x: ir.Value, inner: ir.Value, outer: ir.Value) -> bool:
        return all(node_of(value).attributes.get_ints("perm") is not None for value in (inner, outer))

    def rewrite(self, op: OperatorMaker, x: ir.Value, inner: ir.Value, outer: ir.Value) -> ir.Value:
        first, second = (_perm(value) for value in (inner, outer))
        perm = [first[axis] for axis in second]
        return op.Identity(x) if perm == sorted(perm) else op.Transpose(x, perm=perm)


class TransposeOfReshapable(Rule):
    """A transpose that moves only axes of size 1 is a reshape, but between convolutions, where it meets its inverse."""

    def pattern(self, op: OperatorMaker, x: ir.Value) -> ir.Value:
        return op.Transpose(x, _outputs=["transposed"])

    def check(self, context: MatchContext, x: ir.Value, transposed: ir.Value) -> bool:
        sizes, perm = sizes_of(x), node_of(transposed).attributes.get_ints("perm")
        if sizes is None or perm is None or has_channels_first(x) or is_turned(x):
            return False
        kept = [axis for axis in perm if sizes[axis] != 1]
        return kept == sorted(kept)

    def rewrite(self, op: OperatorMaker, x: ir.Value, transposed: ir.Value) -> ir.Value | None:
        sizes = known_sizes(x)
        target = self.target(op, [sizes[axis] for axis in _perm(transposed)])
        return None if target is None else op.Reshape(x, target)


class ReshapeOfReshape(Rule):
    def pattern(self, op: OperatorMaker, x: ir.Value, first: ir.Value, second: ir.Value) -> ir.Value:
        return op.Reshape(op.Reshape(x, first), second, _outputs=["outer"])

    def check(self, context: MatchContext, x: ir.Value, first: ir.Value, second: ir.Value, outer: ir.Value) -> bool:
        return (
            sizes_of(x) is not None
            and sizes_of(outer) is not None
            and not node_of(outer).attributes.get_int("allowzero", 0)
        )

    def rewrite(
        self, op: OperatorMaker, x: ir.Value, first: ir.Value, second: ir.Value, outer: ir.Value
    ) -> ir.Value | None:
        target = self.target(op, known_sizes(outer))
        return None if target is None else op.Reshape(x, target)


class ReshapeOfAxes(Rule):
    """`Reshape(Squeeze(x))` or `Reshape(Unsqueeze(x))` as one reshape."""

    def pattern(self, op: OperatorMaker, x: ir.Value, axes: ir.Value, shape: ir.Value) -> ir.Value:
        return op.Reshape(getattr(op, self.op_type)(x, axes), shape, _outputs=["result"])

    def check(self, context: MatchContext, x: ir.Value, result: ir.Value, **_: object) -> bool:
        return is_float(x) and sizes_of(result) is not None

    def rewrite(self, op: OperatorMaker, x: ir.Value, result: ir.Value, **_: object) -> ir.Value | None:
        target = self.target(op, known_sizes(result))
        return None if target is None else op.Reshape(x, target)


class AxesOfReshape(ReshapeOfAxes):
    """`Squeeze(Reshape(x))` or `Unsqueeze(Reshape(x))` as one reshape."""

    def pattern(self, op: OperatorMaker, x: ir.Value, axes: ir.Value, shape: ir.Value) -> ir.Value:
        return getattr(op, self.op_type)(op.Reshape(x, shape), axes, _outputs=["result"])


class TransposeOfOnes(Rule):
    """A transpose of rank 5 or more without its axes of size 1."""

    def pattern(self, op: OperatorMaker, x: ir.Value) -> ir.Value:
        return op.Transpose(x, _outputs=["transposed"])

    def check(self, context: MatchContext, x: ir.Value, transposed: ir.Value) -> bool:
        sizes = sizes_of(x)
        return is_float(x) and sizes is not None and len(sizes) > 4 and 1 in sizes and bool(_perm(transposed))

    def rewrite(self, op: OperatorMaker, x: ir.Value, transposed: ir.Value) -> ir.Value | None:
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


class ReshapeToItself(Rule):
    def pattern(self, op: OperatorMaker, x: ir.Value, shape: ir.Value) -> ir.Value:
        return op.Reshape(x, shape, _outputs=["same"])

    def check(self, context: MatchContext, x: ir.Value, shape: ir.Value, same: ir.Value) -> bool:
        return sizes_of(x) is not None and sizes_of(x) == sizes_of(same)

    def rewrite(self, op: OperatorMaker, x: ir.Value, shape: ir.Value, same: ir.Value) -> ir.Value:
        return op.Identity(x)


class PlainTarget(Rule):
    """A target computed from the shapes of intermediate values, computed from the shapes of graph inputs instead."""

    def pattern(self, op: OperatorMaker, x: ir.Value, shape: ir.Value) -> ir.Value:
        return op.Reshape(x, shape, _outputs=["result"])

    def check(self, context: MatchContext, x: ir.Value, shape: ir.Value, result: ir.Value) -> bool:
        return constant(shape) is None and sizes_of(result) is not None and not self._is_plain(shape)

    @staticmethod
    def _is_plain(shape):
        node = shape.producer()
        parts = [] if node is None else node.inputs if node.op_type == "Concat" else [shape]
        makers = [each.producer() for each in parts if constant(each) is None]
        return all(maker and maker.op_type == "Shape" and maker.inputs[0].is_graph_input() for maker in makers)

    def rewrite(self, op: OperatorMaker, x: ir.Value, shape: ir.Value, result: ir.Value) -> ir.Value | None:
        target = self.target(op, known_sizes(result))
        return None if target is None else op.Reshape(x, target)


class UnaryOfReshape(Rule):
    """`f(Reshape(x))` as `Reshape(f(x))`: reshapes move down until they cancel."""

    def pattern(self, op: OperatorMaker, x: ir.Value, shape: ir.Value) -> ir.Value:
        return getattr(op, self.op_type)(op.Reshape(x, shape), _outputs=["result"])

    def check(self, context: MatchContext, x: ir.Value, shape: ir.Value, result: ir.Value) -> bool:
        return sizes_of(x) is not None

    def rewrite(self, op: OperatorMaker, x: ir.Value, shape: ir.Value, result: ir.Value) -> ir.Value:
        return op.Reshape(getattr(op, self.op_type)(x, **attributes_of(result)), shape)


class BinaryOfReshape(Rule):
    """`f(a, Reshape(b))` of equal shapes as `Reshape(f(Reshape(a), b))`, where b is a matrix."""

    def pattern(self, op: OperatorMaker, a: ir.Value, b: ir.Value, shape: ir.Value) -> ir.Value:
        return getattr(op, self.op_type)(a, op.Reshape(b, shape, _outputs=["transposed"]))

    def check(self, context: MatchContext, a: ir.Value, b: ir.Value, shape: ir.Value, transposed: ir.Value) -> bool:
        sizes, flat = sizes_of(a), sizes_of(b)
        return (
            sizes is not None
            and flat is not None
            and len(flat) == 2
            and sizes == sizes_of(transposed)
            and len(sizes) > 2
        )

    def rewrite(
        self, op: OperatorMaker, a: ir.Value, b: ir.Value, shape: ir.Value, transposed: ir.Value
    ) -> ir.Value | None:
        flat = self.flat(op, a, b, transposed)
        return None if flat is None else op.Reshape(getattr(op, self.op_type)(flat, b), shape)

    def flat(self, op: OperatorMaker, a: ir.Value, b: ir.Value, transposed: ir.Value) -> ir.Value | None:
        """The other operand as a matrix; in a square both operands are the same."""
        if a is transposed:
            return b
        target = self.target(op, known_sizes(b))
        return None if target is None else op.Reshape(a, target)


class BinaryOfReshapeFirst(BinaryOfReshape):
    def pattern(self, op: OperatorMaker, a: ir.Value, b: ir.Value, shape: ir.Value) -> ir.Value:
        return getattr(op, self.op_type)(op.Reshape(b, shape, _outputs=["transposed"]), a)

    def rewrite(
        self, op: OperatorMaker, a: ir.Value, b: ir.Value, shape: ir.Value, transposed: ir.Value
    ) -> ir.Value | None:
        flat = self.flat(op, a, b, transposed)
        return None if flat is None else op.Reshape(getattr(op, self.op_type)(b, flat), shape)


class NormOfReshape(Rule):
    """A norm over the last axis, which a reshape keeps, in rank 2."""

    def pattern(self, op: OperatorMaker, x: ir.Value, shape: ir.Value, scale: ir.Value) -> ir.Value:
        transposed = op.Reshape(x, shape, _outputs=["transposed"])
        return getattr(op, self.op_type)(transposed, scale, _allow_other_inputs=True, _outputs=["result"])

    def check(
        self,
        context: MatchContext,
        x: ir.Value,
        shape: ir.Value,
        scale: ir.Value,
        transposed: ir.Value,
        result: ir.Value,
    ) -> bool:
        flat, sizes = sizes_of(x), sizes_of(transposed)
        if not flat or not sizes or flat[-1] != sizes[-1] or len(flat) != 2:
            return False
        return node_of(result).attributes.get_int("axis", -1) == -1

    def rewrite(
        self, op: OperatorMaker, x: ir.Value, shape: ir.Value, scale: ir.Value, transposed: ir.Value, result: ir.Value
    ) -> ir.Value:
        rest = node_of(result).inputs[2:]
        return op.Reshape(getattr(op, self.op_type)(x, scale, *rest, **attributes_of(result)), shape)


class NormThenReshape(Rule):
    """`Reshape(norm(x))` to a matrix as `norm(Reshape(x))`: everything after the first embedding is then of rank 2."""

    def pattern(self, op: OperatorMaker, x: ir.Value, scale: ir.Value, shape: ir.Value) -> ir.Value:
        norm = getattr(op, self.op_type)(x, scale, _allow_other_inputs=True, _outputs=["norm"])
        return op.Reshape(norm, shape, _outputs=["result"])

    def check(
        self, context: MatchContext, x: ir.Value, scale: ir.Value, shape: ir.Value, norm: ir.Value, result: ir.Value
    ) -> bool:
        sizes, flat = sizes_of(x), sizes_of(result)
        if not sizes or len(sizes) < 3 or flat != [multiply(*sizes[:-1]), sizes[-1]]:
            return False
        return node_of(norm).attributes.get_int("axis", -1) == -1

    def rewrite(
        self, op: OperatorMaker, x: ir.Value, scale: ir.Value, shape: ir.Value, norm: ir.Value, result: ir.Value
    ) -> ir.Value:
        flat = op.Reshape(x, self.target(op, known_sizes(result)))
        return getattr(op, self.op_type)(flat, scale, *node_of(norm).inputs[2:], **attributes_of(norm))


def reshape_rules(dims: Dims, options: OnnxOptions) -> list[RuleSet]:
    """Returns the rules for reshapes and transposes."""
    rules: list[Callable[[Dims], Rule]]
    rules = [
        TransposeOfTranspose,
        TransposeOfReshapable,
        TransposeOfOnes,
        ReshapeOfReshape,
        ReshapeToItself,
        PlainTarget,
    ]
    found: list[Rule] = [rule(dims) for rule in rules]
    found += [rule(dims, each) for each in ("Squeeze", "Unsqueeze") for rule in (ReshapeOfAxes, AxesOfReshape)]
    found += [rule(dims, norm) for norm in _NORMS for rule in (NormThenReshape, NormOfReshape)]
    found += [UnaryOfReshape(dims, each) for each in _UNARY]
    found += [rule(dims, each) for each in _BINARY for rule in (BinaryOfReshape, BinaryOfReshapeFirst)]
    return [RuleSet(found)]
