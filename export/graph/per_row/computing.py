"""Operations of numbers on tensors that depend on the index of each row: by element, reductions and products."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from keras_transformer.export.graph.per_row.step import Step
from keras_transformer.export.graph.per_row.values import PerRow, Value, aligned, joined

Rule = Callable[[Step], list[Value]]

# The result has the broadcast shape of all operands.
BY_ELEMENT = [
    "Abs",
    "Add",
    "AddV2",
    "Atan2",
    "Cast",
    "Ceil",
    "Cos",
    "Cosh",
    "Div",
    "Equal",
    "Exp",
    "Expm1",
    "Floor",
    "FloorDiv",
    "FloorMod",
    "Greater",
    "GreaterEqual",
    "Identity",
    "Inv",
    "IsFinite",
    "IsInf",
    "IsNan",
    "LeakyRelu",
    "Less",
    "LessEqual",
    "Log",
    "Log1p",
    "LogicalAnd",
    "LogicalNot",
    "LogicalOr",
    "Maximum",
    "Minimum",
    "Mod",
    "Mul",
    "MulNoNan",
    "Neg",
    "NotEqual",
    "OnesLike",
    "Pow",
    "PreventGradient",
    "RealDiv",
    "Reciprocal",
    "Relu",
    "Rint",
    "Round",
    "Rsqrt",
    "Select",
    "SelectV2",
    "Sigmoid",
    "Sign",
    "Sin",
    "Sinh",
    "Sqrt",
    "Square",
    "SquaredDifference",
    "StopGradient",
    "Sub",
    "Tan",
    "Tanh",
    "TruncateDiv",
    "TruncateMod",
    "Xdivy",
    "ZerosLike",
]
_REDUCTIONS = ("All", "Any", "Max", "Mean", "Min", "Prod", "Sum")
# A letter that equations of Keras do not use.
_ROWS = "Z"


def by_element(step: Step) -> list[Value]:
    """Computes each element by itself."""
    operands = step.operands()
    if step.node.op == "Select" and operands[0].shape.rank != operands[1].shape.rank:
        raise step.refused("selects whole rows")
    return [step.result(step.emitted(operands)[0])]


def identities(step: Step) -> list[Value]:
    """IdentityN: returns its inputs."""
    return [joined(each) for each in step.values]


def reduction(step: Step) -> list[Value]:
    """Reduces a tensor along constant axes."""
    value, axes = step.value(0), step.number(1)
    if not isinstance(value, PerRow):
        raise step.refused("takes its axes from it")
    shifted = [int(axis) + 1 if axis >= 0 else int(axis) for axis in axes.reshape(-1)]
    return [PerRow(step.emitted([value.tensor, tf.constant(shifted, "int32")])[0])]


def einsum(step: Step) -> list[Value]:
    """A sum of products by an equation, with the rows as a further index in front."""
    equation = step.node.attr["equation"].s.decode()
    operands, _, output = equation.partition("->")
    if _ROWS in equation or "." in equation or step.batch_axis is not None:
        raise step.refused(f"multiplies by '{equation}'")
    values = [joined(each) for each in step.values]
    terms = [
        _ROWS + term if isinstance(each, PerRow) else term
        for term, each in zip(operands.split(","), values, strict=True)
    ]
    tensors = [each.tensor if isinstance(each, PerRow) else each for each in values]
    return [PerRow(tf.einsum(f"{','.join(terms)}->{_ROWS}{output}", *tensors))]


def product(step: Step) -> list[Value]:
    """A product of matrices, or of many."""
    values = [joined(each) for each in step.values]
    axis = step.batch_axis
    tensors = [aligned(each, step.rank, axis) if isinstance(each, PerRow) else each for each in values]
    first, second = ("transpose_a", "transpose_b") if step.node.op == "MatMul" else ("adj_x", "adj_y")
    found = tf.matmul(*tensors, transpose_a=step.node.attr[first].b, transpose_b=step.node.attr[second].b)
    return [step.result(found)]


def fill(step: Step) -> list[Value]:
    """A tensor of one number for each row."""
    shape, value = step.plain(0), step.value(1)
    if not isinstance(value, PerRow) or step.batch_axis is not None:
        raise step.refused("takes a shape from it")
    number = aligned(value, step.rank, None)
    return [PerRow(tf.broadcast_to(number, tf.concat([tf.shape(value.tensor)[:1], tf.cast(shape, "int32")], 0)))]


def counted(step: Step) -> list[Value]:
    """Range: numbers from the index on; their count is the same in all rows."""
    start, limit, delta = (step.value(index) for index in range(3))
    if isinstance(delta, PerRow) or not isinstance(start, PerRow):
        raise step.refused("counts up to it")
    difference = (limit.tensor if isinstance(limit, PerRow) else limit) - start.tensor
    offsets = tf.range(tf.zeros_like(delta), difference[0], delta)
    return [PerRow(tf.expand_dims(start.tensor, 1) + tf.expand_dims(offsets, 0))]


RULES: dict[str, Rule] = {
    **dict.fromkeys(BY_ELEMENT, by_element),
    **dict.fromkeys(_REDUCTIONS, reduction),
    **dict.fromkeys(("MatMul", "BatchMatMul", "BatchMatMulV2"), product),
    "Einsum": einsum,
    "Fill": fill,
    "IdentityN": identities,
    "Range": counted,
}
