"""Rules that keep channels before rows and columns between convolutions, as ONNX has them."""

from __future__ import annotations

import onnx_ir as ir
from onnxscript.rewriter import MatchContext

from keras_transformer.export.onnx.options import OnnxOptions
from keras_transformer.export.onnx.passes.shapes.dims import Dims
from keras_transformer.export.onnx.passes.shapes.integers import constant, sizes_of
from keras_transformer.export.onnx.rewrites.rule import OperatorMaker, Rule, RuleSet, is_float, node_of

FIRST, LAST = (0, 3, 1, 2), (0, 2, 3, 1)
# Operators whose results have channels first.
_CHANNELS_FIRST = ("Conv", "ConvTranspose", "MaxPool", "AveragePool", "GlobalAveragePool")
# Operators that compute the same with any order of the axes, and which transposes are moved past.
_ANY_ORDER = frozenset(
    [
        *("Add", "Sub", "Mul", "Div", "Relu", "LeakyRelu", "Clip", "Sigmoid", "HardSigmoid", "Tanh", "Elu", "Selu"),
        *("Gelu", "Erf", "Exp", "Log", "Neg", "Abs", "Sqrt", "Softplus", "Softsign", "Min", "Max", "Concat", "Pad"),
    ]
)


class GlobalAveragePool(Rule):
    """The mean over the rows and columns of what a convolution computes.

    ONNX Runtime moves transposes past other operators to the next convolution, but they would stay at a mean; and of the
    two it has kernels of integers and of blocks of channels for the pool alone.
    """

    def pattern(self, op: OperatorMaker, x: ir.Value, axes: ir.Value) -> ir.Value:
        return op.ReduceMean(x, axes, _outputs=["mean"])

    def check(self, context: MatchContext, x: ir.Value, axes: ir.Value, mean: ir.Value) -> bool:
        sizes, found = sizes_of(x), constant(axes)
        if not is_float(x) or sizes is None or len(sizes) != 4 or found is None:
            return False
        return sorted(int(axis) % 4 for axis in found) == [1, 2] and is_turned(x)

    def rewrite(self, op: OperatorMaker, x: ir.Value, axes: ir.Value, mean: ir.Value) -> ir.Value:
        pooled = op.GlobalAveragePool(op.Transpose(x, perm=list(FIRST)))
        if node_of(mean).attributes.get_int("keepdims", 1):
            return op.Transpose(pooled, perm=list(LAST))
        return op.Squeeze(pooled, self.ints(op, 2, 3))


def is_turned(value: ir.Value) -> bool:
    """Whether a value is computed, in any order of the axes, from the transposed result of a convolution or a pool."""
    node = value.producer()
    while node is not None and node.op_type in _ANY_ORDER:
        node = next((each.producer() for each in node.inputs if each is not None and each.producer() is not None), None)
    if node is None or node.op_type != "Transpose" or node.inputs[0] is None:
        return False
    return has_channels_first(node.inputs[0]) and node.attributes.get_ints("perm") == LAST


def has_channels_first(value: ir.Value) -> bool:
    """Whether a value is the result of a convolution or a pool."""
    node = value.producer()
    return node is not None and node.op_type in _CHANNELS_FIRST


def channels_first_rules(dims: Dims, options: OnnxOptions) -> list[RuleSet]:
    """Returns the rules for pools of channels."""
    return [RuleSet([GlobalAveragePool(dims)])]
