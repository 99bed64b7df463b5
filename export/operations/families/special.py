"""The error function and its relatives."""

from __future__ import annotations

import math

import numpy as np
import tensorflow as tf

from keras_transformer.export.graph.part import Node
from keras_transformer.export.operations.conditions import is_float32
from keras_transformer.export.operations.families.polynomials import fitted, horner
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


# erf(x) / x as a polynomial of x² for |x| <= 1, 2e-9 away.
_ERF = fitted(lambda x: np.array([math.erf(math.sqrt(each)) / math.sqrt(each) for each in x]), 6, [0, 1])
# exp(z²) erfc(z) as a polynomial of (z - 2) / (z + 2) for 1 <= z <= 10.1, 1e-9 away.
_COMPLEMENT = fitted(lambda t: _scaled_complement(_argument(t)), 9, [-1 / 3, (_LARGEST - 2) / (_LARGEST + 2)])
# Giles, "Approximating the erfinv Function", GPU Computing Gems, 2012, table 5: of w - 5/2 and of sqrt(w) - 3.
_ERFINV_CENTER = [
    *(1.50140941, 0.246640727, -0.00417768164, -0.00125372503, 0.00021858087, -4.39150654e-06),
    *(-3.5233877e-06, 3.43273939e-07, 2.81022636e-08),
]
_ERFINV_TAIL = [
    *(2.83297682, 1.00167406, 0.00943887047, -0.0076224613, 0.00573950773, -0.00367342844, 0.00134934322),
    *(0.000100950558, -0.000200214257),
]


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
    return _or_nan(x, tf.where(size <= 1.0, _near_zero(x), tf.sign(x) * (1.0 - _complement(size))))


def complementary_error_function(x: Tensor) -> Tensor:
    far = _complement(tf.abs(x))
    return _or_nan(x, tf.where(tf.abs(x) <= 1.0, 1.0 - _near_zero(x), tf.where(x > 0.0, far, 2.0 - far)))


def _or_nan(x: Tensor, result: Tensor) -> Tensor:
    """The result, and NaN where the argument is: limits of arguments drop it."""
    return tf.where(tf.equal(x, x), result, x)


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
    w = -tf.where(tf.abs(x) < 0.5, tf.math.log1p(-x * x), tf.math.log((1.0 - x) * (1.0 + x)))
    center = horner(_ERFINV_CENTER, tf.minimum(w, 5.0) - 2.5)
    tail = horner(_ERFINV_TAIL, tf.sqrt(tf.maximum(w, 5.0)) - 3.0)
    inside = tf.where(w < 5.0, center, tail) * x
    return tf.where(tf.equal(tf.abs(x), 1.0), x * math.inf, inside)


def normal_quantile(p: Tensor) -> Tensor:
    return math.sqrt(2) * tf.math.erfinv(2.0 * p - 1.0)


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

OPERATIONS = (
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
