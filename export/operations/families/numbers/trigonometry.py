"""Circular and hyperbolic functions, and their inverses."""

from __future__ import annotations

import math

import numpy as np
import tensorflow as tf

from keras_transformer.export.operations.conditions import is_float32
from keras_transformer.export.operations.families.numbers.nan import or_nan
from keras_transformer.export.operations.families.numbers.polynomials import fitted, horner
from keras_transformer.export.operations.operation import ONNX, TFLITE, Decomposed, Operation
from keras_transformer.utils.types import Tensor

# Above, the square of a number overflows sooner than its logarithm loses a digit.
_LARGE = 1e9


# tan(x) / x as a polynomial of x² for |x| <= pi / 4, 2e-9 of it away.
_TANGENT = fitted(lambda x: np.tan(np.sqrt(x)) / np.sqrt(x), 7, [0, (math.pi / 4) ** 2])
# A quarter turn as a sum of numbers of few digits, whose products with whole numbers are exact.
_QUARTER = (1.5703125, 4.837512969970703e-4, 7.54978995489188e-8)
_FEW_TURNS = 8192.0


def tangent(x: Tensor) -> Tensor:
    """That of what is left of the nearest number of quarter turns: near a pole, the digits of a cosine do not suffice."""
    turns = tf.round(x * (2.0 / math.pi))
    rest = x
    for part in _QUARTER:
        rest = rest - turns * part
    near = rest * horner(_TANGENT, rest * rest)
    is_odd = tf.not_equal(tf.floor(0.5 * turns) * 2.0, turns)
    return tf.where(tf.abs(x) < _FEW_TURNS, tf.where(is_odd, -1.0 / near, near), tf.sin(x) / tf.cos(x))


def arccosine(x: Tensor) -> Tensor:
    return 2.0 * tf.atan2(tf.sqrt(1.0 - x), tf.sqrt(1.0 + x))


def arcsine(x: Tensor) -> Tensor:
    return tf.atan2(x, tf.sqrt((1.0 - x) * (1.0 + x)))


def arctangent(x: Tensor) -> Tensor:
    return tf.atan2(x, tf.ones_like(x))


def arctangent_of_quotient(y: Tensor, x: Tensor) -> Tensor:
    """The angle of the sizes, in the quadrant of the signs: those of zeros count too, of which 1 / -0 is negative."""
    size, base = tf.abs(y), tf.abs(x)
    # Two zeros have the angle 0, and two infinities that of equal numbers.
    is_even = tf.logical_and(tf.equal(size, base), size > 0.0)
    is_zero = tf.logical_and(tf.equal(size, 0.0), tf.equal(base, 0.0))
    quotient = tf.where(is_even, 1.0, tf.where(is_zero, 0.0, size / base))
    angle = tf.atan(quotient)
    angle = tf.where(_is_below_zero(x), math.pi - angle, angle)
    return tf.where(_is_below_zero(y), -angle, angle)


def _is_below_zero(x: Tensor) -> Tensor:
    return tf.logical_or(x < 0.0, 1.0 / x < 0.0)


def hyperbolic_cosine(x: Tensor) -> Tensor:
    """Of the exponential of half the argument, which does not overflow before the result does."""
    root = tf.exp(0.5 * tf.abs(x))
    return or_nan(x, (0.5 * root) * root + (0.5 / root) / root)


def hyperbolic_sine(x: Tensor) -> Tensor:
    """Near 0 of `exp(x) - 1`, so that no digits cancel."""
    size = tf.abs(x)
    small = tf.math.expm1(tf.minimum(size, 1.0))
    root = tf.exp(0.5 * size)
    far = (0.5 * root) * root - (0.5 / root) / root
    return tf.sign(x) * tf.where(size <= 1.0, 0.5 * (small + small / (small + 1.0)), far)


def inverse_hyperbolic_cosine(x: Tensor) -> Tensor:
    beyond = tf.minimum(x, _LARGE) - 1.0
    near = tf.math.log1p(beyond + tf.sqrt(beyond) * tf.sqrt(beyond + 2.0))
    return or_nan(x, tf.where(x > _LARGE, _log_of_double(x), near))


def inverse_hyperbolic_sine(x: Tensor) -> Tensor:
    size = tf.abs(x)
    small = tf.minimum(size, _LARGE)
    square = small * small
    near = tf.math.log1p(small + square / (1.0 + tf.sqrt(1.0 + square)))
    return tf.sign(x) * tf.where(size > _LARGE, _log_of_double(size), near)


def _log_of_double(x: Tensor) -> Tensor:
    """LiteRT's logarithm of infinity is 88.4 on processors without AVX-512; its converter stores infinity as a number."""
    return tf.where(x > tf.float32.max, x, tf.math.log(x) + math.log(2))


def inverse_hyperbolic_tangent(x: Tensor) -> Tensor:
    size = tf.abs(x)
    inside = 0.5 * tf.sign(x) * tf.math.log1p(2.0 * size / (1.0 - size))
    return tf.where(tf.equal(size, 1.0), x / (1.0 - size), inside)


OPERATIONS = (
    Operation("Sin", rounds=True),
    Operation("Cos", rounds=True),
    Operation("Tan", {TFLITE: Decomposed(tangent)}, rounds=True),
    Operation("Acos", {TFLITE: Decomposed(arccosine)}, rounds=True),
    Operation("Asin", {TFLITE: Decomposed(arcsine)}, rounds=True),
    Operation("Atan", {TFLITE: Decomposed(arctangent)}, rounds=True),
    Operation("Atan2", {ONNX: Decomposed(arctangent_of_quotient, when=is_float32)}, rounds=True),
    Operation("Cosh", {TFLITE: Decomposed(hyperbolic_cosine)}, rounds=True),
    Operation("Sinh", {TFLITE: Decomposed(hyperbolic_sine)}, rounds=True),
    Operation("Tanh", rounds=True),
    Operation("Acosh", {TFLITE: Decomposed(inverse_hyperbolic_cosine)}, rounds=True),
    Operation("Asinh", {TFLITE: Decomposed(inverse_hyperbolic_sine)}, rounds=True),
    Operation("Atanh", {TFLITE: Decomposed(inverse_hyperbolic_tangent)}, rounds=True),
)
