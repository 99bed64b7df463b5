"""Choices between the elements of two tensors, and one-hot rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from keras_transformer.export.graph.part import Node
from keras_transformer.export.graph.repeated_layers import WEIGHT
from keras_transformer.export.graph.traced_graph import VARIABLE
from keras_transformer.export.operations.operation import ONNX, TFLITE, Decomposed, Native, Operation
from keras_transformer.utils.types import Tensor

# That of tf2onnx, which has no types.
_Operator: TypeAlias = Any
# Operators of TensorFlow and of ONNX: tf2onnx turns a graph from the first to the last into the other.
_LOGIC = ("And", "Or", "Not", "LogicalAnd", "LogicalOr", "LogicalNot", "Identity", "Cast")
_INPUTS = ("Placeholder", "PlaceholderWithDefault")
_SOFTMAX = ("Softmax", "LogSoftmax")
_QUOTIENTS = ("Div", "RealDiv", "Reciprocal", "Inv", "Mod", "FloorMod")
_ROOTS = ("Sqrt", "Rsqrt")
_LIMITED = ("Log", "Log1p", "Exp", "Expm1", "Pow", "Acos", "Acosh", "Asin", "Atanh", "Xlogy", "Tan", "Sinh", "Cosh")
_MOVES = (
    *("Add", "AddV2", "Sub", "Mul", "Neg", "Abs", "Sign", "Square", "Identity", "Select", "SelectV2", "Where"),
    *("Reshape", "Transpose", "ExpandDims", "Unsqueeze", "Squeeze", "BroadcastTo", "Expand", "Tile"),
    *("StridedSlice", "Slice", "Gather", "Concat", "ConcatV2"),
)


def selected(graph: Any, node: _Operator, name: str, arguments: object) -> None:
    """ONNX's `Where` of floats: what is not selected may be infinite or NaN.

    Scores and weights of attention are large, and their operands finite where the result is: they are products with 0 and 1,
    which are faster, and which `onnx.rewrites.masks` makes a bias of.
    """
    from onnx import TensorProto
    from tf2onnx.onnx_opset.controlflow import Select

    if graph.get_dtype(node.output[0]) in (TensorProto.FLOAT, TensorProto.DOUBLE):
        is_finite = _is_of_softmax(graph, node) and not any(map(_may_be_infinite, _sources(node.inputs[1:])))
        node.set_attr("handles_nan", not is_finite or _checks_finiteness(node.inputs[0]))
    Select.version_9(graph, node)
    node.attr.pop("handles_nan", None)


def _is_of_softmax(graph: Any, node: _Operator) -> bool:
    """Whether a softmax computes an operand, or reads the result."""
    found = [*node.inputs[1:], *graph.find_output_consumers(node.output[0])]
    return any(each.type in _SOFTMAX for each in found if each is not None)


def _checks_finiteness(node: _Operator) -> bool:
    """Whether an operator tells infinite numbers or NaN from others."""
    if node is None or node.is_const():
        return False
    is_compared = node.type in ("Equal", "NotEqual") and node.input[0] == node.input[1]
    if is_compared or node.type in ("IsNaN", "IsInf", "IsFinite"):
        return True
    return node.type in _LOGIC and any(map(_checks_finiteness, node.inputs))


def _sources(nodes: Iterable[_Operator]) -> list[_Operator]:
    """The operators from which sums and products of numbers come."""
    found: dict[str, _Operator] = {}
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if node is not None and node.name not in found:
            found[node.name] = node
            waiting.extend(node.inputs if node.type in _MOVES else ())
    return list(found.values())


def _may_be_infinite(node: _Operator) -> bool:
    """Whether an operator may return an infinite number or NaN of moderate numbers, such as `1 / x`, or is an input."""
    if node.is_const():
        value = node.get_tensor_value(as_list=False)
        return value.dtype.kind == "f" and not np.isfinite(value).all()
    if node.type in _INPUTS:
        return _is_given(node)
    if node.type in _QUOTIENTS:
        return not _is_far_from_zero(node.inputs[-1])
    if node.type in _ROOTS:
        return not _is_far_from_zero(node.inputs[0])
    return node.type in _LIMITED


def _is_given(node: _Operator) -> bool:
    """Whether a placeholder is an input of the model: floats, no weight, and no argument of a function, which has a name."""
    from onnx import TensorProto

    is_argument = not node.graph.graph_name.startswith("tf2onnx")
    is_float = node.graph.get_dtype(node.output[0]) == TensorProto.FLOAT
    return is_float and not is_argument and not node.name.startswith((VARIABLE, WEIGHT))


def _is_far_from_zero(node: _Operator) -> bool:
    """Whether an operator is a constant, or adds one, as to a variance."""
    if node is None:
        return False
    if node.type in ("Add", "AddV2", "Max", "Maximum"):
        return any(each is not None and each.is_const() for each in node.inputs)
    return bool(node.is_const()) or (node.type in ("Sqrt", "Identity") and _is_far_from_zero(node.inputs[0]))


def selected_bytes(condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """LiteRT selects int8, and no uint8."""
    return tf.cast(tf.where(condition, tf.cast(x, tf.int32), tf.cast(y, tf.int32)), tf.uint8)


def one_hot(indices: Tensor, depth: Tensor, on: Tensor, off: Tensor, *, axis: int) -> Tensor:
    """A comparison with the numbers below the depth: ONNX counts indices below 0 from the end."""
    dtype = tf.int64 if indices.dtype == tf.int64 else tf.int32
    axis = indices.shape.rank if axis == -1 else axis
    shape = [1] * axis + [-1] + [1] * (indices.shape.rank - axis)
    classes = tf.reshape(tf.range(tf.cast(depth, dtype)), shape)
    return tf.where(tf.equal(tf.expand_dims(tf.cast(indices, dtype), axis), classes), on, off)


def one_hot_of_any(indices: Tensor, depth: Tensor, on: Tensor, off: Tensor, *, axis: int) -> Tensor:
    """LiteRT has no indices of bytes, and takes the lower half of an int64, which may be that of another number."""
    if indices.dtype == tf.int64:
        indices = tf.minimum(tf.maximum(indices, tf.constant(-1, tf.int64)), tf.cast(depth, tf.int64))
    return tf.one_hot(tf.cast(indices, tf.int32), depth, on, off, axis)


def _is_of_unsigned_bytes(node: Node) -> bool:
    return node.dtype(1) == tf.uint8


def _may_be_outside(node: Node) -> bool:
    """Whether indices may be below 0, or ONNX Runtime does not take the types."""
    return not _is_found_index(node) or node.dtype(2) != tf.float32


def _is_wide(node: Node) -> bool:
    """Whether indices are bytes, or int64 that may be larger than int32."""
    return node.dtype() == tf.uint8 or (node.dtype() == tf.int64 and not _is_found_index(node))


def _is_found_index(node: Node) -> bool:
    """Whether indices are those of elements that were searched."""
    producer = node.producer(0)
    while producer is not None and producer.op in ("Cast", "Reshape", "Identity"):
        producer = producer.producer(0)
    return producer is not None and producer.op in ("ArgMax", "ArgMin", "TopKV2")


_ANY_INDICES = Decomposed(one_hot_of_any, ("axis",), _is_wide)
_SELECTED, _BYTES = Native(selected), Decomposed(selected_bytes, when=_is_of_unsigned_bytes)

OPERATIONS = (
    Operation("OneHot", {TFLITE: _ANY_INDICES, ONNX: Decomposed(one_hot, ("axis",), _may_be_outside)}),
    Operation("Select", {ONNX: _SELECTED}),
    Operation("SelectV2", {TFLITE: _BYTES, ONNX: _SELECTED}),
)
