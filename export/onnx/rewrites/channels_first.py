"""Rules for what stands between convolutions, which have channels first in ONNX and last in Keras."""

from __future__ import annotations

import onnx_ir as ir
from onnxscript.rewriter import MatchContext

from keras_transformer.export.onnx.options import OnnxOptions
from keras_transformer.export.onnx.passes.shapes.dims import Dims
from keras_transformer.export.onnx.passes.shapes.integers import constant, sizes_of
from keras_transformer.export.onnx.rewrites.rule import (
    OperatorMaker,
    Rule,
    RuleSet,
    array_of,
    attributes_of,
    is_float,
    node_of,
)

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
# Activation functions that ONNX Runtime fuses with a convolution.
_FUSED = ("Relu", "Sigmoid", "Tanh", "LeakyRelu")


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


class BiasOfSequence(Rule):
    """A bias that is added to the result of a convolution over a sequence, after the second axis is removed."""

    def pattern(self, op: OperatorMaker, x: ir.Value, kernel: ir.Value, axes: ir.Value, bias: ir.Value) -> ir.Value:
        turned = op.Transpose(op.Conv(x, kernel, _outputs=["convolved"]), _outputs=["turned"])
        return op.Add(op.Squeeze(turned, axes), bias)

    def check(
        self, context: MatchContext, kernel: ir.Value, bias: ir.Value, axes: ir.Value, turned: ir.Value, **_: object
    ) -> bool:
        sizes = sizes_of(kernel)
        return (
            _is_sequence(turned, axes) and sizes is not None and bias.is_initializer() and sizes_of(bias) == sizes[:1]
        )

    def rewrite(
        self, op: OperatorMaker, x: ir.Value, kernel: ir.Value, axes: ir.Value, bias: ir.Value, **values: ir.Value
    ) -> ir.Value:
        convolved = op.Conv(x, kernel, bias, **attributes_of(values["convolved"]))
        return op.Squeeze(op.Transpose(convolved, perm=list(LAST)), axes)


class ActivationOfSequence(Rule):
    """An activation function of what a convolution over a sequence computes, which is fused with it where it is next."""

    def pattern(self, op: OperatorMaker, x: ir.Value, axes: ir.Value) -> ir.Value:
        turned = op.Transpose(x, _outputs=["turned"])
        return getattr(op, self.op_type)(op.Squeeze(turned, axes), _outputs=["result"])

    def check(self, context: MatchContext, x: ir.Value, axes: ir.Value, turned: ir.Value, result: ir.Value) -> bool:
        return has_channels_first(x) and _is_sequence(turned, axes)

    def rewrite(self, op: OperatorMaker, x: ir.Value, axes: ir.Value, turned: ir.Value, result: ir.Value) -> ir.Value:
        active = getattr(op, self.op_type)(x, **attributes_of(result))
        return op.Squeeze(op.Transpose(active, perm=list(LAST)), axes)


class PaddingOfSequence(Rule):
    """Zeros around a sequence, as of a causal convolution, as those of the convolution itself."""

    def pattern(self, op: OperatorMaker, x: ir.Value, pads: ir.Value, axes: ir.Value, kernel: ir.Value) -> ir.Value:
        padded = op.Unsqueeze(op.Pad(x, pads, _outputs=["padded"]), axes)
        turned = op.Transpose(padded, _outputs=["turned"])
        return op.Conv(turned, kernel, _allow_other_inputs=True, _outputs=["convolved"])

    def check(
        self,
        context: MatchContext,
        pads: ir.Value,
        axes: ir.Value,
        padded: ir.Value,
        turned: ir.Value,
        convolved: ir.Value,
        **_: object,
    ) -> bool:
        found = constant(pads)
        if found is None or found.size != 6 or found.min() < 0 or not _is_row(axes):
            return False
        modes = [node_of(padded).attributes.get_string("mode", "constant")]
        modes += [node_of(convolved).attributes.get_string("auto_pad", "NOTSET")]
        is_turned = node_of(turned).attributes.get_ints("perm") == FIRST
        return is_turned and modes == ["constant", "NOTSET"] and not found[[0, 2, 3, 5]].any()

    def rewrite(
        self, op: OperatorMaker, x: ir.Value, pads: ir.Value, axes: ir.Value, kernel: ir.Value, **values: ir.Value
    ) -> ir.Value:
        convolution, around = node_of(values["convolved"]), array_of(pads)
        top, left, bottom, right = convolution.attributes.get_ints("pads") or (0, 0, 0, 0)
        sides = [top, left + int(around[1]), bottom, right + int(around[4])]
        channels = op.Transpose(op.Unsqueeze(x, axes), perm=list(FIRST))
        options = {**attributes_of(values["convolved"]), "pads": sides}
        return op.Conv(channels, *convolution.inputs[1:], **options)


class RowOfSequence(Rule):
    """A row that is removed behind one convolution and added before the next."""

    def pattern(self, op: OperatorMaker, x: ir.Value, removed: ir.Value, added: ir.Value) -> ir.Value:
        return op.Unsqueeze(op.Squeeze(x, removed), added)

    def check(self, context: MatchContext, x: ir.Value, removed: ir.Value, added: ir.Value) -> bool:
        sizes = sizes_of(x)
        return sizes is not None and len(sizes) == 4 and _is_row(removed) and _is_row(added)

    def rewrite(self, op: OperatorMaker, x: ir.Value, **_: ir.Value) -> ir.Value:
        return op.Identity(x)


def _is_sequence(turned: ir.Value, axes: ir.Value) -> bool:
    """Whether a transposed value has one row, and loses it."""
    return _is_row(axes) and node_of(turned).attributes.get_ints("perm") == LAST


def _is_row(axes: ir.Value) -> bool:
    """Whether an axis is the second one of four."""
    found = constant(axes)
    return found is not None and found.tolist() in ([1], [-3])


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
    """Returns the rules for pools of channels, and for convolutions over sequences."""
    rules: list[Rule] = [GlobalAveragePool(dims), BiasOfSequence(dims), PaddingOfSequence(dims), RowOfSequence(dims)]
    return [RuleSet([*rules, *(ActivationOfSequence(dims, each) for each in _FUSED)])]
