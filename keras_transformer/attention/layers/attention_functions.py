"""Functions from scores to attention weights that are no softmax: each score becomes a weight by itself."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from keras import ops

from keras_transformer.utils.types import Tensor

# Below it, the distribution function is a series: the quotient of the GELU would be 0 / 0 at zero.
_NEAR = 0.5
_MEAN, _DEVIATION = math.sqrt(0.5), math.sqrt(0.25 / math.pi)


def squared_relu(scores: Tensor) -> Tensor:
    """Squared ReLU: `max(s, 0)²`. So et al., Primer, arXiv 2109.08668."""
    return ops.square(ops.relu(scores))


def laplace(scores: Tensor) -> Tensor:
    """Laplace function: `(1 + erf((s - μ) / (σ √2))) / 2` with `μ = √(1/2)`, `σ = √(1 / 4π)`.

    At a score of √(1/2) it has the value and the slope of the squared ReLU; it is bounded by 1.

    Ma et al., Mega, arXiv 2209.10655, the Laplace attention function.
    """
    return normal_distribution((scores - _MEAN) * (1.0 / _DEVIATION))


def normal_distribution(x: Tensor) -> Tensor:
    """Returns the distribution function of the standard normal, `Φ(x) = (1 + erf(x / √2)) / 2`.

    It is `GELU(x) / x`, because TFLite has the GELU as a built-in operator, but no error function.
    """
    is_near = ops.abs(x) < _NEAR
    far = ops.where(is_near, 1.0, x)
    near = ops.where(is_near, x, 0.0)
    squares, series = ops.square(near), ops.zeros_like(near)
    for power in range(6, -1, -1):
        series = series * squares + (-1.0) ** power / (2.0**power * math.factorial(power) * (2 * power + 1))
    series = 0.5 + near * series * float(1 / np.sqrt(2 * np.pi))
    return ops.where(is_near, series, ops.gelu(far, approximate=False) / far)


ATTENTION_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {"squared_relu": squared_relu, "laplace": laplace}
