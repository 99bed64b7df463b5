"""Operations on the bits of numbers."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from keras_transformer.export.graph.part import Node
from keras_transformer.export.operations.conditions import is_int64
from keras_transformer.export.operations.operation import ONNX, TFLITE, Decomposed, Operation, Refused, in_both
from keras_transformer.utils.types import Tensor

_SIGN = np.iinfo("int32").min
_POWERS = np.array([1 << number for number in range(31)] + [_SIGN], "int64").astype("int32")
_LONG_POWERS = np.array([1 << number for number in range(63)] + [np.iinfo("int64").min], "int64")


def bits_in_both(x: Tensor, y: Tensor) -> Tensor:
    """`x & y` of sums and of `x ^ y`: `x + y = (x ^ y) + 2 (x & y)`, without the last bit, so that nothing overflows."""
    one = tf.constant(1, x.dtype)
    half_x, half_y = tf.bitwise.right_shift(x, one), tf.bitwise.right_shift(y, one)
    last = (x - half_x - half_x) * (y - half_y - half_y)
    return half_x + half_y - tf.bitwise.bitwise_xor(half_x, half_y) + last


def bits_in_either(x: Tensor, y: Tensor) -> Tensor:
    return tf.bitwise.bitwise_xor(x, y) + tf.bitwise.bitwise_and(x, y)


def inverted(x: Tensor) -> Tensor:
    return tf.constant(-1, x.dtype) - x


def shifted_left(x: Tensor, y: Tensor) -> Tensor:
    powers = _POWERS if x.dtype == tf.int32 else _LONG_POWERS
    most = tf.constant(len(powers) - 1, y.dtype)
    return x * tf.gather(tf.constant(powers), tf.minimum(tf.maximum(y, tf.zeros_like(most)), most))


def shifted_right(x: Tensor, y: Tensor) -> Tensor:
    """The quotient by a power of two, rounded down; 2⁶³ is too large, so that half of it comes first."""
    first = tf.minimum(y, tf.constant(62, y.dtype))
    x = tf.math.floordiv(x, tf.gather(tf.constant(_LONG_POWERS), first))
    return tf.math.floordiv(x, tf.gather(tf.constant(_LONG_POWERS[:2]), y - first))


def sign_bit(x: Tensor) -> Tensor:
    """The sign bit of a float as that of an integer. Deviation: NaN has none."""
    is_negative = tf.logical_or(x < 0.0, 1.0 / x < 0.0)  # 1 / -0 is negative too.
    return tf.cast(is_negative, tf.int32) * tf.constant(_SIGN)


def _is_sign_bit(node: Node) -> bool:
    """Whether a node is `bitcast(x, int32) & 0x80000000`, as `keras.ops.signbit`, `argmax` and `argmin` have it."""
    producer, mask = node.producer(0), node.value(1)
    is_cast = producer is not None and producer.op == "Bitcast" and producer.dtype() == tf.float32
    return is_cast and mask is not None and mask.size == 1 and int(mask) == _SIGN


def _float_of(node: Node) -> list[str]:
    producer = node.producer(0)
    return [] if producer is None else [producer.inputs[0]]


_SIGN_BIT = Decomposed(sign_bit, when=_is_sign_bit, operands=_float_of)
_REFUSED = Refused("LiteRT has bitwise operators of int32 only", "cast to int32 before", is_int64)

OPERATIONS = (
    Operation("BitwiseAnd", {TFLITE: (_SIGN_BIT, _REFUSED, Decomposed(bits_in_both)), ONNX: _SIGN_BIT}),
    Operation("BitwiseOr", {TFLITE: (_REFUSED, Decomposed(bits_in_either))}),
    Operation("BitwiseXor", {TFLITE: _REFUSED}),
    Operation("Invert", in_both(Decomposed(inverted))),
    Operation("LeftShift", {TFLITE: (_REFUSED, Decomposed(shifted_left)), ONNX: Decomposed(shifted_left)}),
    Operation("RightShift", {TFLITE: _REFUSED, ONNX: Decomposed(shifted_right, when=is_int64)}),
)
