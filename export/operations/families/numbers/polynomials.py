"""Polynomials that stand for functions which a format lacks, or computes with fewer digits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformer.utils.types import Tensor


def fitted(function: Callable[[np.ndarray], np.ndarray], degree: int, domain: Sequence[float]) -> list[float]:
    """The coefficients, that of the lowest power first, of the polynomial that equals a function in Chebyshev's points.

    Args:
        function: of an array of float64.
        degree: of the polynomial.
        domain: first and last argument.
    """
    chebyshev = np.polynomial.Chebyshev.interpolate(function, deg=degree, domain=domain)
    return chebyshev.convert(kind=np.polynomial.Polynomial).coef.tolist()


def horner(coefficients: Sequence[float], x: Tensor) -> Tensor:
    """The value of a polynomial.

    Args:
        coefficients: that of the lowest power first.
        x: float tensor.
    """
    *others, total = (tf.constant(each, x.dtype) for each in coefficients)
    for coefficient in reversed(others):
        total = total * x + coefficient
    return total


def chebyshev_series(function: Callable[[np.ndarray], np.ndarray], degree: int) -> list[float]:
    """The coefficients of the Chebyshev series of a function on [-1, 1]: many of them lose no digits to one another.

    Args:
        function: of an array of float64.
        degree: of the series.
    """
    interpolate: Any = np.polynomial.chebyshev.chebinterpolate  # Its types know functions of one number only.
    found: list[float] = interpolate(function, degree).tolist()
    return found


def clenshaw(coefficients: Sequence[float], x: Tensor) -> Tensor:
    """The value of a Chebyshev series.

    Args:
        coefficients: that of degree 0 first.
        x: float tensor, from -1 to 1.
    """
    first, *others = (tf.constant(each, x.dtype) for each in coefficients)
    total, before = tf.zeros_like(x), tf.zeros_like(x)
    for coefficient in reversed(others):
        total, before = 2.0 * x * total - before + coefficient, total
    return x * total - before + first
