"""The error function and its relatives, and Bessel functions."""

from __future__ import annotations

import math
import statistics

import numpy as np
import tensorflow as tf

from keras_transformer.export.graph.part import Node
from keras_transformer.export.operations.conditions import is_float32
from keras_transformer.export.operations.families.numbers.nan import or_nan
from keras_transformer.export.operations.families.numbers.polynomials import chebyshev_series, clenshaw, fitted, horner
from keras_transformer.export.operations.operation import ONNX, TFLITE, Decomposed, Operation, in_both
from keras_transformer.utils.types import Tensor

# In float32, erfc is 0 beyond.
_LARGEST = 10.1


def _scaled_complement(z: np.ndarray) -> np.ndarray:
    """`exp(z²) erfc(z)`, a smooth function."""
    return np.array([math.exp(each * each) * math.erfc(each) for each in z])


def _argument(t: np.ndarray) -> np.ndarray:
    """The `z` of `t = (z - 2) / (z + 2)`."""
    return 2 * (1 + t) / (1 - t)


def _quantile(p: np.ndarray) -> np.ndarray:
    return np.array([statistics.NormalDist().inv_cdf(each) for each in p])


def _missing(inverse: np.ndarray) -> np.ndarray:
    """`r` and the quantile at `exp(-r² / 2)`, whose sum is small."""
    return 1 / inverse + _quantile(np.exp(-0.5 / inverse**2))


def _scaled_bessel(x: np.ndarray) -> np.ndarray:
    return np.i0(x) * np.exp(-x)


# erf(x) / x as a polynomial of x² for |x| <= 1, 2e-9 away.
_ERF = fitted(lambda x: np.array([math.erf(math.sqrt(each)) / math.sqrt(each) for each in x]), 6, [0, 1])
# exp(z²) erfc(z) as a polynomial of (z - 2) / (z + 2) for 1 <= z <= 10.1, 1e-9 away.
_COMPLEMENT = fitted(lambda t: _scaled_complement(_argument(t)), 9, [-1 / 3, (_LARGEST - 2) / (_LARGEST + 2)])
# The quantile of the normal distribution at 1/2 + c, divided by c, as a polynomial of c² for |c| <= 1/2 - exp(-2).
_MIDDLE = fitted(lambda x: _quantile(0.5 + np.sqrt(x)) / np.sqrt(x), 11, [0, (0.5 - math.exp(-2)) ** 2])
# What is missing of `-r` to the quantile at exp(-r² / 2), as a series of 1 / r, for 2 <= r <= 13.3.
_NEAREST, _FARTHEST = 1 / 2, 1 / 13.3
_TAIL = chebyshev_series(lambda x: _missing((x + 1) / 2 * (_NEAREST - _FARTHEST) + _FARTHEST), 12)
# The Bessel function of order 0 times exp(-x), of `x / 4 - 1` for x <= 8; and that times sqrt(x), of `16 / x - 1` beyond.
_BESSEL = chebyshev_series(lambda x: _scaled_bessel(4 * (x + 1)), 17)
_BESSEL_BEYOND = chebyshev_series(lambda x: _scaled_bessel(16 / (x + 1)) * np.sqrt(16 / (x + 1)), 6)


def _near_zero(x: Tensor) -> Tensor:
    """`erf(x)` for `|x| <= 1`."""
    x = tf.minimum(tf.maximum(x, -1.0), 1.0)
    return x * horner(_ERF, x * x)


def _complement(size: Tensor) -> Tensor:
    """`erfc(size)` for `size >= 1`."""
    size = tf.minimum(tf.maximum(size, 1.0), _LARGEST)
    return tf.exp(-size * size) * horner(_COMPLEMENT, (size - 2.0) / (size + 2.0))


def error_function(x: Tensor) -> Tensor:
    size = tf.abs(x)
    return or_nan(x, tf.where(size <= 1.0, _near_zero(x), tf.sign(x) * (1.0 - _complement(size))))


def complementary_error_function(x: Tensor) -> Tensor:
    far = _complement(tf.abs(x))
    return or_nan(x, tf.where(tf.abs(x) <= 1.0, 1.0 - _near_zero(x), tf.where(x > 0.0, far, 2.0 - far)))


def error_function_of_gelu(t: Tensor) -> Tensor:
    """`erfc(t) = 2 gelu(x) / x` for `x = -√2 t`, and 1 for x = 0.

    The converter makes a GELU of `x / 2 · erfc(-x / √2)` where nothing else reads the `Erfc`, and its gradient does.
    """
    x = t * -math.sqrt(2)
    gelu = 0.5 * x * tf.math.erfc(-x * math.sqrt(0.5))
    is_zero = tf.equal(x, 0.0)
    # Nothing is divided by 0; where x is 0, the quotient is not used.
    return tf.where(is_zero, 1.0, gelu * 2.0 / (x + tf.cast(is_zero, x.dtype)))


def inverse_error_function(x: Tensor) -> Tensor:
    """By the quantile, as TensorFlow computes it: near 1 the sum rounds, which the result shows."""
    return normal_quantile(0.5 * x + 0.5, math.sqrt(0.5))


def normal_quantile(p: Tensor, factor: float = 1.0) -> Tensor:
    """The quantile of the normal distribution, times a factor.

    It is a polynomial in the middle, and a series of the logarithm beyond `exp(-2)`. At the ends it is the logarithm itself:
    in TFLite products, sums and constants are finite.
    """
    is_upper = p > 1.0 - math.exp(-2)
    lower = tf.where(is_upper, 1.0 - p, p)
    center = tf.minimum(tf.maximum(p - 0.5, math.exp(-2) - 0.5), 0.5 - math.exp(-2))
    middle = center * horner(_MIDDLE, center * center)
    logarithm = tf.math.log(lower)
    reach = tf.sqrt(-2.0 * tf.minimum(logarithm, -2.0))
    inverse = 1.0 / reach
    series = clenshaw(_TAIL, (inverse - _FARTHEST) * (2 / (_NEAREST - _FARTHEST)) - 1.0)
    tail = tf.where(is_upper, reach - series, series - reach)
    found = tf.where(lower > math.exp(-2), middle, tail) * factor
    found = tf.where(tf.equal(lower, 0.0), tf.where(is_upper, -logarithm, logarithm), found)
    return tf.where(tf.logical_and(p >= 0.0, p <= 1.0), found, tf.constant(math.nan, p.dtype))


def bessel(x: Tensor) -> Tensor:
    """The modified Bessel function of order 0."""
    return tf.exp(tf.abs(x)) * scaled_bessel(x)


def scaled_bessel(x: Tensor) -> Tensor:
    """The modified Bessel function of order 0, times `exp(-|x|)`."""
    size = tf.abs(x)
    near = clenshaw(_BESSEL, tf.minimum(size, 8.0) * 0.25 - 1.0)
    far = tf.maximum(size, 8.0)
    beyond = clenshaw(_BESSEL_BEYOND, 16.0 / far - 1.0) / tf.sqrt(far)
    return tf.where(size <= 8.0, near, beyond)


def complement_of_error_function(x: Tensor) -> Tensor:
    return tf.constant(1, x.dtype) - tf.math.erf(x)


def _is_gelu(node: Node) -> bool:
    """Whether the converter makes a GELU of an `Erfc` and what is around it: only products read it, and it reads one."""
    producer = node.producer(0)
    return producer is not None and producer.op == "Mul" and all(each == "Mul" for each in node.readers)


def _is_shared_gelu(node: Node) -> bool:
    return len(node.readers) > 1 and is_float32(node)


def _is_alone(node: Node) -> bool:
    return is_float32(node) and not _is_gelu(node)


_OF_GELU = Decomposed(error_function_of_gelu, when=_is_shared_gelu)
_QUANTILE, _ERFINV = Decomposed(normal_quantile), Decomposed(inverse_error_function)
_BESSEL_FUNCTION, _SCALED_BESSEL = Decomposed(bessel), Decomposed(scaled_bessel)

OPERATIONS = (
    Operation("BesselI0", in_both(_BESSEL_FUNCTION), rounds=True),
    Operation("BesselI0e", in_both(_SCALED_BESSEL), rounds=True),
    Operation("Erf", {TFLITE: Decomposed(error_function)}, rounds=True),
    Operation(
        "Erfc",
        {
            TFLITE: (_OF_GELU, Decomposed(complementary_error_function, when=_is_alone)),
            ONNX: Decomposed(complement_of_error_function),
        },
        rounds=True,
    ),
    Operation("Erfinv", in_both(_ERFINV), rounds=True),
    Operation("Ndtri", in_both(_QUANTILE), rounds=True),
)
