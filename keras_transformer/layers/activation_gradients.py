"""GELU and SiLU with gradients in closed form, which keep the input only; automatic ones keep up to five tensors like it.

The exact form of GELU is that with erf on every backend: JAX's own, with erfc, takes several times as long on CPUs, for
digits that float32 loses in the next sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from keras import ops

from keras_transformer.utils.types import Tensor

_CUBE = 0.044715
_RATE = math.sqrt(2 / math.pi)


def gelu(x: Tensor) -> Tensor:
    """Returns `x Φ(x)`, with Φ of the normal distribution; the derivative is `Φ(x) + x φ(x)`.

    Example:

    >>> import numpy as np
    >>> np.array(gelu(np.array([0.0, 1.0], "float32"))).round(3).tolist()
    [0.0, 0.8410000205039978]

    Reference: Hendrycks and Gimpel, arXiv 1606.08415, section 2.
    """

    def phi(x: Tensor) -> Tensor:
        return 0.5 * (1.0 + ops.erf(x * math.sqrt(0.5)))

    def derivative(x: Tensor) -> Tensor:
        return phi(x) + x * (ops.exp(-0.5 * ops.square(x)) / math.sqrt(2 * math.pi))

    return _with_derivative(lambda x: x * phi(x), derivative)(x)


def gelu_tanh(x: Tensor) -> Tensor:
    """Returns `0.5 x (1 + tanh(u))` with `u = √(2/π) (x + 0.044715 x³)`.

    Its derivative is `0.5 (1 + tanh(u)) + 0.5 x (1 - tanh²(u)) du/dx`.

    Example:

    >>> import numpy as np
    >>> np.array(gelu_tanh(np.array([0.0, 1.0], "float32"))).round(3).tolist()
    [0.0, 0.8410000205039978]

    Reference: Hendrycks and Gimpel, arXiv 1606.08415, section 2.
    """

    def tanh(x: Tensor) -> Tensor:
        return ops.tanh(x * (_RATE + _RATE * _CUBE * ops.square(x)))

    def derivative(x: Tensor) -> Tensor:
        t = tanh(x)
        slope = _RATE + 3 * _RATE * _CUBE * ops.square(x)
        return 0.5 * (1.0 + t) * (1.0 + x * (1.0 - t) * slope)

    return _with_derivative(lambda x: 0.5 * x * (1.0 + tanh(x)), derivative)(x)


def silu(x: Tensor) -> Tensor:
    """Returns `x σ(x)`; the derivative is `σ(x) (1 + x (1 - σ(x)))`.

    Example:

    >>> import numpy as np
    >>> np.array(silu(np.array([0.0, 1.0], "float32"))).round(3).tolist()
    [0.0, 0.7310000061988831]

    Reference: Hendrycks and Gimpel, arXiv 1606.08415, section 2.
    """

    def derivative(x: Tensor) -> Tensor:
        sigmoid = ops.sigmoid(x)
        return sigmoid * (1.0 + x * (1.0 - sigmoid))

    return _with_derivative(lambda x: x * ops.sigmoid(x), derivative)(x)


def _with_derivative(function: Callable[[Tensor], Tensor], derivative: Callable[[Tensor], Tensor]) -> Callable:
    @ops.custom_gradient
    def evaluate(x: Tensor) -> tuple[Tensor, Callable[..., Tensor]]:
        def backward(*arguments: Tensor, upstream: Tensor | None = None) -> Tensor:
            return (arguments[0] if upstream is None else upstream) * derivative(x)

        return function(x), backward

    return evaluate
