"""GELU and SiLU with gradients in closed form, which keep the input only; automatic ones keep up to five tensors like it.

The exact form of GELU is that with erf on every backend: JAX's own, with erfc, takes several times as long on CPUs, for
digits that float32 loses in the next sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from keras import ops

from keras_transformer.backend.gradients.vjp import vjp
from keras_transformer.utils.types import Tensor

_CUBE = 0.044715
_RATE = 2 * math.sqrt(2 / math.pi)
_HALF = math.sqrt(0.5)


def gelu(x: Tensor) -> Tensor:
    """Returns `x Φ(x)`, with Φ of the normal distribution; the derivative is `Φ(x) + x φ(x)`.

    Example:

    >>> import numpy as np
    >>> np.array(gelu(np.array([0.0, 1.0], "float32"))).round(3).tolist()
    [0.0, 0.8410000205039978]

    Reference: Hendrycks and Gimpel, arXiv 1606.08415, section 2.
    """

    def phi(x: Tensor) -> Tensor:
        return 0.5 * (1.0 + ops.erf(_HALF * x))

    def derivative(x: Tensor) -> Tensor:
        return phi(x) + x * ops.exp(-0.5 * math.log(2 * math.pi) - ops.square(_HALF * x))

    return _with_derivative(lambda x: x * phi(x), derivative)(x)


def gelu_tanh(x: Tensor) -> Tensor:
    """Returns `0.5 x (1 + tanh(u))` with `u = √(2/π) (x + 0.044715 x³)`, as `x σ(2u)`.

    Its derivative is `σ(2u) + x σ'(2u) 2 du/dx`.

    Example:

    >>> import numpy as np
    >>> np.array(gelu_tanh(np.array([0.0, 1.0], "float32"))).round(3).tolist()
    [0.0, 0.8410000205039978]

    Reference: Hendrycks and Gimpel, arXiv 1606.08415, section 2.
    """

    def exponent(x: Tensor) -> Tensor:
        return x * (_RATE + _RATE * _CUBE * ops.square(x))

    def derivative(x: Tensor) -> Tensor:
        sigmoid, slope = vjp(ops.sigmoid, exponent(x))
        return sigmoid + slope(x * (_RATE + 3 * _RATE * _CUBE * ops.square(x)))[0]

    return _with_derivative(lambda x: x * ops.sigmoid(exponent(x)), derivative)(x)


def silu(x: Tensor) -> Tensor:
    """Returns `x σ(x)`; the derivative is `σ(x) + x σ'(x)`.

    Example:

    >>> import numpy as np
    >>> np.array(silu(np.array([0.0, 1.0], "float32"))).round(3).tolist()
    [0.0, 0.7310000061988831]

    Reference: Hendrycks and Gimpel, arXiv 1606.08415, section 2.
    """

    def derivative(x: Tensor) -> Tensor:
        sigmoid, slope = vjp(ops.sigmoid, x)
        return sigmoid + slope(x)[0]

    return _with_derivative(lambda x: x * ops.sigmoid(x), derivative)(x)


def _with_derivative(function: Callable[[Tensor], Tensor], derivative: Callable[[Tensor], Tensor]) -> Callable:
    @ops.custom_gradient
    def evaluate(x: Tensor) -> tuple[Tensor, Callable[..., Tensor]]:
        def backward(*arguments: Tensor, upstream: Tensor | None = None) -> Tensor:
            return (arguments[0] if upstream is None else upstream) * derivative(x)

        return function(x), backward

    return evaluate
