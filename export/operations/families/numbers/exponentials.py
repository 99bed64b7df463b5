"""Exponentials, logarithms and roots."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from keras_transformer.export.graph.part import Node
from keras_transformer.export.operations.conditions import is_float32
from keras_transformer.export.operations.families.numbers.nan import is_not_of_limited, is_of_limited, or_nan
from keras_transformer.export.operations.families.numbers.polynomials import fitted, horner
from keras_transformer.export.operations.operation import NAN, TFLITE, Decomposed, Operation, Region, in_both
from keras_transformer.utils.types import Tensor

# 2 artanh(z) / z as a polynomial of z² for |z| <= 1/3, 2e-9 of it away.
_ARTANH = [2 * each for each in fitted(lambda x: np.arctanh(np.sqrt(x)) / np.sqrt(x), 4, [0, 1 / 9])]
# (exp(x) - 1) / x for |x| <= 1/2, 3e-9 of it away.
_EXPM1 = fitted(lambda x: np.expm1(x) / x, 7, [-0.5, 0.5])


def exponential(x: Tensor) -> Tensor:
    return or_nan(x, tf.exp(x))


def _logarithm_near_one(x: Tensor) -> Tensor:
    """`log(1 + x)` for `-1/2 <= x <= 1`, as `2 artanh(z)` with `z = x / (2 + x)`: there is no sum that rounds x away."""
    z = x / (x + 2.0)
    return z * horner(_ARTANH, z * z)


def softplus(x: Tensor) -> Tensor:
    """`max(x, 0) + log(1 + exp(-|x|))`.

    State-space models have steps of softplus(-7), in which `log(1 + exp(x))`, as TFLite's converter writes it, is wrong by
    6e-5. XNNPACK's logarithm loses as much near 1, so that it cannot be used with a correction either.
    """
    return tf.maximum(x, 0.0) + _logarithm_near_one(tf.exp(-tf.abs(x)))


def log1p(x: Tensor) -> Tensor:
    """`log(1 + x)` where that is far from 0, and a series near it."""
    near = _logarithm_near_one(tf.minimum(tf.maximum(x, -0.5), 1.0))
    return tf.where(tf.logical_and(x >= -0.5, x <= 1.0), near, tf.math.log(x + 1.0))


def expm1(x: Tensor) -> Tensor:
    """`exp(x) - 1` where that is far from 0, and a series near it."""
    small = tf.minimum(tf.maximum(x, -0.5), 0.5)
    return or_nan(x, tf.where(tf.abs(x) <= 0.5, small * horner(_EXPM1, small), tf.exp(x) - 1.0))


def inverse_root(x: Tensor) -> Tensor:
    """Of what may be 0, whose inverse root is NaN in XNNPACK."""
    return tf.sqrt(tf.math.reciprocal(x))


def _may_be_zero(node: Node) -> bool:
    """Whether nothing is added to an argument, as to a variance, and there is no lower limit."""
    producer = node.producer(0)
    if producer is None or not is_float32(node):
        return False
    is_limited = producer.op in ("Add", "AddV2", "Maximum")
    return not (is_limited and any(map(node.part.is_weight, producer.inputs)))


_LOG1P, _EXPM1_FUNCTION = Decomposed(log1p), Decomposed(expm1)

OPERATIONS = (
    Operation(
        "Exp",
        {TFLITE: Decomposed(exponential, when=is_of_limited)},
        rounds=True,
        differs={TFLITE: (Region(NAN, is_not_of_limited),)},
    ),
    Operation("Expm1", in_both(_EXPM1_FUNCTION), rounds=True),
    Operation("Log", rounds=True),
    Operation("Log1p", in_both(_LOG1P), rounds=True),
    Operation("Rsqrt", {TFLITE: Decomposed(inverse_root, when=_may_be_zero)}, rounds=True),
    Operation("Sqrt", rounds=True),
    Operation("Square", rounds=True),
    Operation("Softplus", {TFLITE: Decomposed(softplus, when=is_float32)}, rounds=True),
)
