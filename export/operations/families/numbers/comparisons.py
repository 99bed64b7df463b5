"""Comparisons.

The converter of TFLite makes the largest finite numbers of infinities that are constants. That of ONNX compares integers
as float32 for `<` and `>`, and as what they are for `<=` and `>=`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from keras_transformer.export.graph.part import Node
from keras_transformer.export.operations.conditions import is_float32, is_small, is_wide_integer
from keras_transformer.export.operations.operation import ONNX, SAVED_MODEL, TFLITE, Decomposed, Operation
from keras_transformer.utils.types import Tensor

_LARGEST = float(np.finfo("float32").max)
# The same comparison of two numbers in the other order.
_SWAPPED = {"Less": "Greater", "LessEqual": "GreaterEqual", "Greater": "Less", "GreaterEqual": "LessEqual"}
# Of a number with infinity. That with minus infinity is the opposite one of the negative number.
_WITH_INFINITY: dict[str, Callable[[Tensor], Tensor]] = {
    "Equal": lambda x: x > _LARGEST,
    "NotEqual": lambda x: tf.logical_or(x <= _LARGEST, tf.not_equal(x, x)),
    "Less": lambda x: x <= _LARGEST,
    "LessEqual": lambda x: tf.equal(x, x),
    "Greater": lambda x: tf.zeros_like(x, tf.bool),
    "GreaterEqual": lambda x: x > _LARGEST,
}


def _compared(operation: str) -> Callable[[Tensor, Tensor], Tensor]:
    def compared_with_infinity(x: Tensor, y: Tensor) -> Tensor:
        name, limit = operation, tf.get_static_value(y)
        if limit is None or not _is_infinity(limit):
            name, x, y = _SWAPPED.get(operation, operation), y, x
            limit = tf.get_static_value(y)
        name, x = (_SWAPPED.get(name, name), -x) if limit.flat[0] < 0 else (name, x)
        return tf.broadcast_to(_WITH_INFINITY[name](x), tf.broadcast_dynamic_shape(tf.shape(x), tf.shape(y)))

    return compared_with_infinity


def less_integer(x: Tensor, y: Tensor) -> Tensor:
    return tf.logical_not(x >= y)


def greater_integer(x: Tensor, y: Tensor) -> Tensor:
    return tf.logical_not(x <= y)


def never(x: Tensor, zero: Tensor) -> Tensor:
    """A boolean is not below 0, a comparison that the converter does not take."""
    return tf.zeros_like(x, tf.bool)


def negative_infinity(x: Tensor) -> Tensor:
    """The constant itself, by which a comparison with it is found."""
    return tf.constant(-tf.get_static_value(x))


def opposite(x: Tensor) -> Tensor:
    """TensorFlow's optimizer and converter make it the opposite comparison, which NaN fails too."""
    return tf.where(x, tf.zeros_like(x), tf.ones_like(x))


def _is_infinity(value: np.ndarray) -> bool:
    return value.size > 0 and bool(np.isinf(value).all() and (value == value.flat[0]).all())


def _has_infinity(node: Node) -> bool:
    """Whether a float32 is compared with infinity, or with minus infinity."""
    values = [node.value(0), node.value(1)] if is_float32(node) else []
    return any(each is not None and _is_infinity(each) for each in values)


def _may_be_large(node: Node) -> bool:
    """Whether both operands may be integers that float32 does not have; the arguments of a loop are counters."""
    producers = [node.producer(each) for each in range(2)]
    return is_wide_integer(node) and not any(each is None or is_small(each) for each in producers)


def _is_below_zero(node: Node) -> bool:
    """Whether a boolean that was cast is compared with 0."""
    producer, limit = node.producer(0), node.value(1)
    is_boolean = producer is not None and producer.op == "Cast" and producer.dtype() == tf.bool
    return is_boolean and limit is not None and not limit.any()


def _is_of_infinity(node: Node) -> bool:
    value = node.value(0)
    return value is not None and is_float32(node) and _is_infinity(value)


def _is_of_comparison(node: Node) -> bool:
    """Whether a node reads a comparison of sizes of floats."""
    producer = node.producer(0)
    return producer is not None and producer.op in _SWAPPED and producer.dtype().is_floating


_NEVER = Decomposed(never, when=_is_below_zero)
_OPPOSITE = Decomposed(opposite, when=_is_of_comparison)

_COMPARED = {name: (Decomposed(_compared(name), when=_has_infinity),) for name in _WITH_INFINITY}
_LESS, _GREATER = (Decomposed(function, when=_may_be_large) for function in (less_integer, greater_integer))

OPERATIONS = (
    Operation("Less", {TFLITE: (_NEVER, *_COMPARED.pop("Less")), ONNX: _LESS}),
    Operation("Greater", {TFLITE: _COMPARED.pop("Greater"), ONNX: _GREATER}),
    Operation("Neg", {TFLITE: Decomposed(negative_infinity, when=_is_of_infinity)}),
    Operation("LogicalNot", {SAVED_MODEL: _OPPOSITE, TFLITE: _OPPOSITE}),
    *(Operation(name, {TFLITE: found}) for name, found in _COMPARED.items()),
)
