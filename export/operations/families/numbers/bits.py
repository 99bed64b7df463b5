"""Operations on the bits of numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from keras_transformer.export.graph.part import Node
from keras_transformer.export.operations.conditions import is_int64
from keras_transformer.export.operations.operation import ONNX, TFLITE, Decomposed, Operation, Refused, in_both
from keras_transformer.utils.types import Tensor

_SIGN = np.iinfo("int32").min
_POWERS = np.array([1 << number for number in range(31)] + [_SIGN], "int64").astype("int32")
_LONG_POWERS = np.array([1 << number for number in range(63)] + [np.iinfo("int64").min], "int64")
# The smallest float32 of each exponent, and the two factors that make its fraction of 24 bits a whole number.
_SMALLEST = np.ldexp(1.0, np.arange(-126, 128)).astype("float32")
_STEPS = 23 - np.concatenate([[-126], np.arange(-126, 128)])
_FACTORS = [np.ldexp(1.0, each).astype("float32") for each in (_STEPS // 2, _STEPS - _STEPS // 2)]


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


def halves_in_both(x: Tensor, y: Tensor) -> Tensor:
    return _of_halves(tf.bitwise.bitwise_and, x, y)


def halves_in_either(x: Tensor, y: Tensor) -> Tensor:
    return _of_halves(tf.bitwise.bitwise_or, x, y)


def halves_in_one(x: Tensor, y: Tensor) -> Tensor:
    return _of_halves(tf.bitwise.bitwise_xor, x, y)


def _of_halves(function: Callable[[Tensor, Tensor], Tensor], x: Tensor, y: Tensor) -> Tensor:
    """A function of the bits of int64, of their halves."""
    return tf.bitcast(function(tf.bitcast(x, tf.int32), tf.bitcast(y, tf.int32)), tf.int64)


def shifted_left(x: Tensor, y: Tensor) -> Tensor:
    powers = _POWERS if x.dtype == tf.int32 else _LONG_POWERS
    most = tf.constant(len(powers) - 1, y.dtype)
    return x * tf.gather(tf.constant(powers), tf.minimum(tf.maximum(y, tf.zeros_like(most)), most))


def shifted_right(x: Tensor, y: Tensor) -> Tensor:
    """The quotient by a power of two, rounded down; the largest power is negative, so that half of it comes first."""
    powers = _POWERS if x.dtype == tf.int32 else _LONG_POWERS
    most = tf.constant(len(powers) - 1, y.dtype)
    y = tf.minimum(tf.maximum(y, tf.zeros_like(most)), most)
    first = tf.minimum(y, most - 1)
    x = tf.math.floordiv(x, tf.gather(tf.constant(powers), first))
    return tf.math.floordiv(x, tf.gather(tf.constant(powers[:2]), y - first))


def sign_bit(x: Tensor) -> Tensor:
    """The sign bit of a float as that of an integer. Deviation: NaN has none."""
    is_negative = tf.logical_or(x < 0.0, 1.0 / x < 0.0)  # 1 / -0 is negative too.
    return tf.cast(is_negative, tf.int32) * tf.constant(_SIGN)


def bits_of_float(x: Tensor, **attributes: object) -> Tensor:
    """The bits of a float32 as int32: sign, exponent and fraction by arithmetic. Deviation: of NaN there is one."""
    size = tf.minimum(tf.abs(x), np.finfo("float32").max)
    reached = tf.cast(tf.expand_dims(size, -1) >= tf.constant(_SMALLEST), tf.int32)
    exponent = tf.reduce_sum(reached, -1)  # 0 for a number below the normal ones.
    first, second = (tf.gather(tf.constant(each), exponent) for each in _FACTORS)
    fraction = tf.cast(size * first * second, tf.int32)
    bits = exponent * (1 << 23) + fraction - tf.minimum(exponent, 1) * (1 << 23)
    bits = tf.where(tf.abs(x) > np.finfo("float32").max, tf.constant(0x7F800000), bits)
    bits = tf.where(tf.equal(x, x), bits, tf.constant(0x7FC00000))
    return bits + sign_bit(x)


def float_of_bits(x: Tensor, **attributes: object) -> Tensor:
    """The float32 of which an int32 has the bits."""
    is_negative = x < 0
    size = tf.where(is_negative, x - _SIGN, x)
    exponent = tf.math.floordiv(size, 1 << 23)
    fraction = size - exponent * (1 << 23)
    whole = tf.cast(fraction + tf.minimum(exponent, 1) * (1 << 23), tf.float32)
    first, second = (tf.gather(tf.constant(1 / each), tf.minimum(exponent, 254)) for each in _FACTORS)
    found = whole * first * second
    beyond = tf.where(tf.equal(fraction, 0), tf.constant(np.inf, "float32"), tf.constant(np.nan, "float32"))
    found = tf.where(exponent > 254, beyond, found)
    return tf.where(is_negative, -found, found)


def _is_float_to_bits(node: Node) -> bool:
    return node.dtype() == tf.float32 and node.attribute("type") == tf.int32


def _is_bits_to_float(node: Node) -> bool:
    return node.dtype() == tf.int32 and node.attribute("type") == tf.float32


def _is_sign_bit(node: Node) -> bool:
    """Whether a node is `bitcast(x, int32) & 0x80000000`, as `keras.ops.signbit`, `argmax` and `argmin` have it."""
    producer, mask = node.producer(0), node.value(1)
    is_cast = producer is not None and producer.op == "Bitcast" and producer.dtype() == tf.float32
    return is_cast and mask is not None and mask.size == 1 and int(mask) == _SIGN


def _is_computed_shift(node: Node) -> bool:
    """Whether the number of bits is computed: ONNX Runtime takes it modulo 32, and TensorFlow the nearest that there is."""
    return node.dtype() == tf.int32 and node.value(1) is None


def _float_of(node: Node) -> list[str]:
    producer = node.producer(0)
    return [] if producer is None else [producer.inputs[0]]


_SIGN_BIT = Decomposed(sign_bit, when=_is_sign_bit, operands=_float_of)
_AND, _OR, _XOR = (
    Decomposed(function, when=is_int64) for function in (halves_in_both, halves_in_either, halves_in_one)
)
_RIGHT = Decomposed(shifted_right, when=is_int64)
_TO_BITS, _OF_BITS = (
    Decomposed(bits_of_float, when=_is_float_to_bits),
    Decomposed(float_of_bits, when=_is_bits_to_float),
)
_NO_BITS = Refused("ONNX has no operator for the bits of a number", "leave this format out, or cast the numbers")

OPERATIONS = (
    Operation("Bitcast", {ONNX: (_TO_BITS, _OF_BITS, _NO_BITS)}),
    Operation("BitwiseAnd", {TFLITE: (_SIGN_BIT, _AND, Decomposed(bits_in_both)), ONNX: _SIGN_BIT}),
    Operation("BitwiseOr", {TFLITE: (_OR, Decomposed(bits_in_either))}),
    Operation("BitwiseXor", {TFLITE: _XOR}),
    Operation("Invert", in_both(Decomposed(inverted))),
    Operation("LeftShift", in_both(Decomposed(shifted_left))),
    Operation("RightShift", {TFLITE: _RIGHT, ONNX: (_RIGHT, Decomposed(shifted_right, when=_is_computed_shift))}),
)
