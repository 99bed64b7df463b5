"""Rules that rewrite the masks of Keras's softmax as one bias of the scores, which `attention` matches."""

from __future__ import annotations

import onnx_ir as ir
from onnxscript.rewriter import MatchContext

from keras_transformer.export.onnx.options import OnnxOptions
from keras_transformer.export.onnx.passes.shapes.dims import Dims
from keras_transformer.export.onnx.passes.shapes.integers import sizes_of
from keras_transformer.export.onnx.rewrites.rule import OperatorMaker, Rule, RuleSet, is_float, node_of, scalar

LOWEST = -1e8  # A score plus this vanishes in the softmax.


class SelectAsBias(Rule):
    """`softmax(scores where shown, else lowest)`, written as products with 0 and 1, as `softmax(scores + bias)`."""

    def pattern(self, op: OperatorMaker, shown: ir.Value, scores: ir.Value, hidden: ir.Value) -> ir.Value:
        return op.Softmax(op.Add(op.Mul(shown, scores), hidden), _outputs=["weights"])

    def check(self, context: MatchContext, shown: ir.Value, hidden: ir.Value, **_: object) -> bool:
        return _hides(hidden, shown, lambda number: number <= LOWEST)

    def rewrite(
        self, op: OperatorMaker, shown: ir.Value, scores: ir.Value, hidden: ir.Value, weights: ir.Value
    ) -> ir.Value:
        return op.Softmax(op.Add(scores, hidden), axis=node_of(weights).attributes.get_int("axis", -1))


class MaskOfOnes(Rule):
    """A bias without the conjunction of its mask with ones of the shape of the scores, which Keras computes."""

    def pattern(
        self, op: OperatorMaker, scores: ir.Value, number: ir.Value, ones: ir.Value, shape: ir.Value, mask: ir.Value
    ) -> ir.Value:
        met = op.And(op.Expand(ones, shape), mask, _outputs=["met"])
        return op.Add(scores, op.Mul(number, op.Cast(op.Not(met)), _outputs=["bias"]))

    def check(
        self,
        context: MatchContext,
        scores: ir.Value,
        number: ir.Value,
        ones: ir.Value,
        mask: ir.Value,
        met: ir.Value,
        bias: ir.Value,
        **_: object,
    ) -> bool:
        sizes = sizes_of(scores)
        return sizes is not None and sizes == sizes_of(met) and scalar(ones) is True and is_float(bias)

    def rewrite(self, op: OperatorMaker, scores: ir.Value, number: ir.Value, mask: ir.Value, **_: object) -> ir.Value:
        return op.Add(scores, op.Mul(number, op.Cast(op.Not(mask), to=ir.DataType.FLOAT)))


class WeightsWhereShown(Rule):
    """Attention weights set to zero where they are masked: this changes only rows without a visible key."""

    def pattern(
        self, op: OperatorMaker, shown: ir.Value, scores: ir.Value, hidden: ir.Value, nothing: ir.Value, value: ir.Value
    ) -> ir.Value:
        weights = op.Softmax(op.Add(scores, hidden), _outputs=["weights"])
        return op.MatMul(op.Add(op.Mul(shown, weights), nothing), value)

    def check(
        self,
        context: MatchContext,
        shown: ir.Value,
        hidden: ir.Value,
        nothing: ir.Value,
        weights: ir.Value,
        **_: object,
    ) -> bool:
        is_last = node_of(weights).attributes.get_int("axis", -1) in (-1, 3) and len(sizes_of(shown) or ()) == 4
        lowest = _hides(hidden, shown, lambda number: number <= LOWEST)
        return is_last and lowest and _hides(nothing, shown, lambda number: number == 0)

    def rewrite(
        self,
        op: OperatorMaker,
        shown: ir.Value,
        scores: ir.Value,
        hidden: ir.Value,
        nothing: ir.Value,
        value: ir.Value,
        weights: ir.Value,
    ) -> ir.Value:
        again = op.Softmax(op.Add(scores, hidden), axis=-1)
        return op.Mul(op.MatMul(again, value), op.ReduceMax(shown, self.ints(op, -1), keepdims=1))


def _hides(bias, shown, is_right):
    """Whether a bias is a number that `is_right` accepts where `shown` is 0, and 0 where it is 1."""
    found, mask = hidden_by(bias), _cast_of(shown)
    return found is not None and found[1] is mask and is_right(found[0])


def hidden_by(bias: ir.Value | None) -> tuple[float, ir.Value] | None:
    """Returns the number that a bias is where a mask is False, and the mask, if it is 0 elsewhere; or None."""
    node = None if bias is None else bias.producer()
    if node is None or node.op_type != "Mul":
        return None
    for factor, hidden in (node.inputs, node.inputs[::-1]):
        number, negated = scalar(factor), _cast_of(hidden)
        opposite = None if negated is None else negated.producer()
        mask = opposite.inputs[0] if opposite is not None and opposite.op_type == "Not" else None
        if number is not None and mask is not None:
            return number, mask
    return None


def _cast_of(value):
    """The boolean value that a float was cast from, or None."""
    node = value.producer()
    if node is None or node.op_type != "Cast" or node.inputs[0].dtype != ir.DataType.BOOL:
        return None
    return node.inputs[0] if is_float(value) else None


def mask_rules(dims: Dims, options: OnnxOptions) -> list[RuleSet]:
    """Returns the rules for masks."""
    return [RuleSet([rule(dims) for rule in (SelectAsBias, WeightsWhereShown, MaskOfOnes)], commute=True)]
