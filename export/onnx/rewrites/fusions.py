"""Rules that fuse chains of operators of a converted graph into one operator.

A rule applies only where its conditions are proven from the graph; otherwise the graph stays as it is.
"""

# The parameters of a pattern are its variables: those of a variant are others.
# pyright: reportIncompatibleMethodOverride=false

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
from onnxscript.rewriter import MatchContext

from keras_transformer.export.onnx.options import CONTRIB, OnnxOptions
from keras_transformer.export.onnx.passes.shapes.dims import Dims
from keras_transformer.export.onnx.passes.shapes.integers import constant, known_sizes, sizes_of
from keras_transformer.export.onnx.rewrites.rule import (
    TRANSPOSED,
    VECTOR,
    OperatorMaker,
    Rule,
    RuleSet,
    array_of,
    is_close,
    is_float,
    node_of,
    scalar,
)


def over_last_axis(value: ir.Value, axes: ir.Value) -> bool:
    """Whether `axes` is the last axis of a value."""
    sizes, found = sizes_of(value), constant(axes)
    return sizes is not None and found is not None and found.tolist() in ([-1], [len(sizes) - 1])


def as_vector(op: OperatorMaker, weight: ir.Value, width: int) -> ir.Value | None:
    """Returns a weight `(1, ..., 1, width)` as `(width,)`, or None if it has another shape."""
    sizes = sizes_of(weight)
    if not sizes or sizes[-1] != width or any(size != 1 for size in sizes[:-1]):
        return None
    if len(sizes) == 1:
        return weight
    array = constant(weight)
    if array is not None:
        vector = ir.tensor(np.ascontiguousarray(array.reshape(-1)))
        return op.Constant(value=vector, _outputs=[f"{weight.name}{VECTOR}"])
    return op.Reshape(weight, op.Constant(value=ir.tensor(np.array([-1], np.int64))))


class LayerNormalization(Rule):
    """`x · s + (−mean · s + bias)` with `s = scale / √(variance + ε)`, as Keras writes it."""

    def pattern(
        self,
        op: OperatorMaker,
        x: ir.Value,
        axes: ir.Value,
        variance_axes: ir.Value,
        epsilon: ir.Value,
        scale: ir.Value,
        bias: ir.Value,
    ) -> ir.Value:
        mean = op.ReduceMean(x, axes, keepdims=1)
        deviation = op.Sub(x, mean)
        variance = op.ReduceMean(op.Mul(deviation, deviation), variance_axes, keepdims=1)
        factor = op.Mul(op.Reciprocal(op.Sqrt(op.Add(variance, epsilon))), scale)
        return op.Add(op.Mul(x, factor), op.Add(op.Mul(op.Neg(mean), factor), bias))

    def check(
        self,
        context: MatchContext,
        x: ir.Value,
        axes: ir.Value,
        variance_axes: ir.Value,
        epsilon: ir.Value,
        scale: ir.Value,
        bias: ir.Value,
    ) -> bool:
        sizes = sizes_of(x)
        if not is_float(x) or scalar(epsilon) is None or not sizes or not isinstance(sizes[-1], int):
            return False
        vectors = all((sizes_of(each) or [None])[-1] == sizes[-1] for each in (scale, bias))
        return vectors and over_last_axis(x, axes) and over_last_axis(x, variance_axes)

    def rewrite(
        self,
        op: OperatorMaker,
        x: ir.Value,
        axes: ir.Value,
        variance_axes: ir.Value,
        epsilon: ir.Value,
        scale: ir.Value,
        bias: ir.Value,
    ) -> ir.Value | None:
        gamma, beta = (as_vector(op, each, known_sizes(x)[-1]) for each in (scale, bias))
        if gamma is None or beta is None:
            return None
        return op.LayerNormalization(x, gamma, beta, axis=-1, epsilon=scalar(epsilon))


class RMSNormalization(Rule):
    """`x / √(mean(x²) + ε) · scale`."""

    def pattern(self, op: OperatorMaker, x: ir.Value, axes: ir.Value, epsilon: ir.Value, scale: ir.Value) -> ir.Value:
        mean = op.ReduceMean(op.Mul(x, x), axes, keepdims=1)
        return op.Mul(op.Mul(x, op.Reciprocal(op.Sqrt(op.Add(mean, epsilon)))), scale)

    def check(self, context: MatchContext, x: ir.Value, axes: ir.Value, epsilon: ir.Value, scale: ir.Value) -> bool:
        sizes = sizes_of(x)
        if not is_float(x) or scalar(epsilon) is None or not sizes or not isinstance(sizes[-1], int):
            return False
        return over_last_axis(x, axes) and (sizes_of(scale) or [None])[-1] == sizes[-1]

    def rewrite(
        self, op: OperatorMaker, x: ir.Value, axes: ir.Value, epsilon: ir.Value, scale: ir.Value
    ) -> ir.Value | None:
        gamma = as_vector(op, scale, known_sizes(x)[-1])
        if gamma is None:
            return None
        return op.RMSNormalization(x, gamma, axis=-1, epsilon=scalar(epsilon))


class RMSNormalizationOfPower(RMSNormalization):
    """The same, its square written as a power."""

    def pattern(
        self, op: OperatorMaker, x: ir.Value, axes: ir.Value, epsilon: ir.Value, scale: ir.Value, two: ir.Value
    ) -> ir.Value:
        mean = op.ReduceMean(op.Pow(x, two), axes, keepdims=1)
        return op.Mul(op.Mul(x, op.Reciprocal(op.Sqrt(op.Add(mean, epsilon)))), scale)

    def check(
        self, context: MatchContext, x: ir.Value, axes: ir.Value, epsilon: ir.Value, scale: ir.Value, two: ir.Value
    ) -> bool:
        return is_close(two, 2) and super().check(context, x, axes, epsilon, scale)

    def rewrite(
        self, op: Any, x: ir.Value, axes: ir.Value, epsilon: ir.Value, scale: ir.Value, two: ir.Value
    ) -> ir.Value | None:
        return super().rewrite(op, x, axes, epsilon, scale)


class _Gelu(Rule):
    """A rule that fuses a GELU.

    Args:
        dims: `Dims` of the graph.
        contrib: bool. Whether to use the operator of ONNX Runtime, for opsets without `Gelu`.
    """

    def __init__(self, dims: Dims, contrib: bool) -> None:
        super().__init__(dims)
        self.domain = {"_domain": CONTRIB} if contrib else {}


class GeluErfc(_Gelu):
    """`0.5 x · (1 − erf(−x / √2))`: Keras's exact GELU on TensorFlow."""

    def pattern(self, op: OperatorMaker, x: ir.Value, half: ir.Value, one: ir.Value, root: ir.Value) -> ir.Value:
        return op.Mul(op.Mul(half, x), op.Sub(one, op.Erf(op.Mul(op.Neg(x), root))))

    def check(self, context: MatchContext, x: ir.Value, half: ir.Value, one: ir.Value, root: ir.Value) -> bool:
        return is_float(x) and is_close(half, 0.5) and is_close(one, 1) and is_close(root, math.sqrt(0.5))

    def rewrite(self, op: OperatorMaker, x: ir.Value, **numbers: ir.Value) -> ir.Value:
        return op.Gelu(x, **self.domain)


class GeluErf(GeluErfc):
    """`0.5 x · (1 + erf(x / √2))`."""

    def pattern(self, op: OperatorMaker, x: ir.Value, half: ir.Value, one: ir.Value, root: ir.Value) -> ir.Value:
        return op.Mul(op.Mul(half, x), op.Add(one, op.Erf(op.Mul(x, root))))


class GeluTanh(_Gelu):
    """`0.5 x · (1 + tanh(√(2/π) (x + 0.044715 x³)))`."""

    def pattern(
        self,
        op: OperatorMaker,
        x: ir.Value,
        half: ir.Value,
        one: ir.Value,
        root: ir.Value,
        cubic: ir.Value,
        three: ir.Value,
    ) -> ir.Value:
        inner = op.Add(x, op.Mul(cubic, op.Pow(x, three)))
        return op.Mul(op.Mul(half, x), op.Add(one, op.Tanh(op.Mul(root, inner))))

    def check(
        self,
        context: MatchContext,
        x: ir.Value,
        half: ir.Value,
        one: ir.Value,
        root: ir.Value,
        cubic: ir.Value,
        three: ir.Value,
    ) -> bool:
        numbers = ((half, 0.5), (one, 1), (root, math.sqrt(2 / math.pi)), (cubic, 0.044715), (three, 3))
        return is_float(x) and all(is_close(value, number) for value, number in numbers)

    def rewrite(self, op: OperatorMaker, x: ir.Value, **numbers: ir.Value) -> ir.Value:
        return op.FastGelu(x, **self.domain) if self.domain else op.Gelu(x, approximate="tanh")


class GatherAnyIndex(Rule):
    """`table[i + n where i < 0 else i]`: ONNX's `Gather` supports negative indices."""

    def pattern(
        self, op: OperatorMaker, table: ir.Value, indices: ir.Value, zero: ir.Value, length: ir.Value
    ) -> ir.Value:
        negative = op.Less(op.Cast(indices), zero)
        wrapped = op.Mul(op.Cast(negative), op.Add(indices, length))
        return op.Gather(table, op.Add(wrapped, op.Mul(indices, op.Cast(op.Not(negative)))), _outputs=["rows"])

    def check(
        self,
        context: MatchContext,
        table: ir.Value,
        indices: ir.Value,
        zero: ir.Value,
        length: ir.Value,
        rows: ir.Value,
    ) -> bool:
        axis = node_of(rows).attributes.get_int("axis", 0)
        sizes = sizes_of(table)
        return axis == 0 and is_close(zero, 0) and sizes is not None and scalar(length) == sizes[0]

    def rewrite(self, op: OperatorMaker, table: ir.Value, indices: ir.Value, **others: ir.Value) -> ir.Value:
        return op.Gather(table, indices, axis=0)


class PlainGemm(Rule):
    """`Gemm` without transposes and factors as `MatMul` and `Add`: quantizers recognize a projection by its `MatMul`."""

    def pattern(self, op: OperatorMaker, x: ir.Value, weight: ir.Value, bias: ir.Value) -> ir.Value:
        return op.Gemm(x, weight, bias, _outputs=["product"])

    def check(self, context: MatchContext, x: ir.Value, weight: ir.Value, bias: ir.Value, product: ir.Value) -> bool:
        node = node_of(product)
        flags = [node.attributes.get_int(name, 0) for name in ("transA", "transB")]
        factors = [node.attributes.get_float(name, 1.0) for name in ("alpha", "beta")]
        return flags == [0, 0] and factors == [1.0, 1.0] and bias is not None

    def rewrite(self, op: OperatorMaker, x: ir.Value, weight: ir.Value, bias: ir.Value, product: ir.Value) -> ir.Value:
        return op.Add(op.MatMul(x, weight), bias)


class GemmOfTransposed(Rule):
    """`Gemm` with a transposed weight that has no other consumer, as `MatMul` with the weight transposed now."""

    def pattern(self, op: OperatorMaker, x: ir.Value, weight: ir.Value) -> ir.Value:
        return op.Gemm(x, weight, _outputs=["product"])

    def check(self, context: MatchContext, x: ir.Value, weight: ir.Value, product: ir.Value) -> bool:
        node = node_of(product)
        flags = [node.attributes.get_int(name, 0) for name in ("transA", "transB")]
        is_plain = flags == [0, 1] and node.attributes.get_float("alpha", 1.0) == 1.0 and len(node.inputs) == 2
        return is_plain and weight.const_value is not None and len(weight.uses()) == 1

    def rewrite(self, op: OperatorMaker, x: ir.Value, weight: ir.Value, product: ir.Value) -> ir.Value:
        transposed = ir.tensor(np.ascontiguousarray(array_of(weight).T))
        return op.MatMul(x, op.Constant(value=transposed, _outputs=[f"{weight.name}{TRANSPOSED}"]))


class GemmOfReshaped(GemmOfTransposed):
    """The same with a weight of more axes."""

    def pattern(self, op: OperatorMaker, x: ir.Value, weight: ir.Value, shape: ir.Value) -> ir.Value:
        return op.Gemm(x, op.Reshape(weight, shape, _outputs=["matrix"]), _outputs=["product"])

    def check(
        self, context: MatchContext, x: ir.Value, weight: ir.Value, matrix: ir.Value, product: ir.Value, **_: object
    ) -> bool:
        return sizes_of(matrix) is not None and super().check(context, x, weight, product)

    def rewrite(
        self, op: OperatorMaker, x: ir.Value, weight: ir.Value, matrix: ir.Value, product: ir.Value, **_: object
    ) -> ir.Value:
        transposed = ir.tensor(np.ascontiguousarray(array_of(weight).reshape(known_sizes(matrix)).T))
        return op.MatMul(x, op.Constant(value=transposed, _outputs=[f"{weight.name}{TRANSPOSED}"]))


def fusion_rules(dims: Dims, options: OnnxOptions) -> list[RuleSet]:
    """Returns the rules for norms, GELUs, table lookups and `Gemm`."""
    norms: list[Callable[[Dims], Rule]] = [LayerNormalization]
    norms += [RMSNormalization, RMSNormalizationOfPower] if options.target >= 23 else []
    has_gelu = options.target >= 20
    gelus = (
        [rule(dims, not has_gelu) for rule in (GeluErfc, GeluErf, GeluTanh)] if has_gelu or options.contrib_ops else []
    )
    rules: list[Callable[[Dims], Rule]] = [*norms, GatherAnyIndex, PlainGemm, GemmOfTransposed, GemmOfReshaped]
    sets = [RuleSet([rule(dims) for rule in rules])]
    return [*sets, RuleSet(gelus, commute=True)] if gelus else sets
