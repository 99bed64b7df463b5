"""Layer norm and RMS norm with gradients in closed form, which keep the input only and take few passes over it.

The automatic gradient of `keras.ops.layer_normalization` keeps several tensors of the size of the input and reads them about
a dozen times. The values are the same up to rounding. First-order gradients only: JAX cannot take forward-mode derivatives.
"""

from __future__ import annotations

from collections.abc import Callable

import keras
from keras import ops

from keras_transformer.utils.types import Tensor


def layer_normalization(x: Tensor, gamma: Tensor | None, beta: Tensor | None, epsilon: float) -> Tensor:
    """Returns `(x - mean(x)) / √(var(x) + ε) · γ + β` over the last axis, computed in float32 or more.

    Args:
        x: float `(..., D)`.
        gamma: float `(D,)`, or None for 1.
        beta: float `(D,)`, or None for 0.
        epsilon: float > 0.

    Returns:
        `(..., D)` of the dtype of `x`.

    Example:

    >>> import numpy as np
    >>> x = np.array([[1.0, 3.0]], "float32")
    >>> np.array(layer_normalization(x, np.array([2.0, 1.0], "float32"), None, 1e-6)).round(3).tolist()
    [[-2.0, 1.0]]

    Reference: Ba et al., arXiv 1607.06450, equation 4. With h the normalized x, g the gradient of the output and s = g γ:
    `dx = (s - mean(s) - h mean(s h)) / √(var(x) + ε)`.
    """
    has_gamma, has_beta = gamma is not None, beta is not None

    @ops.custom_gradient
    def normalized(x: Tensor, *weights: Tensor) -> tuple[Tensor, Callable[..., tuple[Tensor, ...]]]:
        mean = ops.mean(_wide(x), axis=-1, keepdims=True)
        centered = _wide(x) - mean
        scale = _as(centered, weights[0]) if has_gamma else None
        inverse = ops.rsqrt(ops.mean(ops.square(centered), axis=-1, keepdims=True) + epsilon)
        y = _scaled(centered * inverse, scale)
        y = y + _as(y, weights[-1]) if has_beta else y

        def backward(*arguments: Tensor, upstream: Tensor | None = None) -> tuple[Tensor, ...]:
            gradient = _wide(arguments[0] if upstream is None else upstream)
            h = (_wide(x) - mean) * inverse
            s = _scaled(gradient, scale)
            of_h = s - ops.mean(s, axis=-1, keepdims=True) - h * ops.mean(s * h, axis=-1, keepdims=True)
            of_weights = [_over_rows(gradient * h)] if has_gamma else []
            of_weights += [_over_rows(gradient)] if has_beta else []
            return _as(x, of_h * inverse), *map(_as, weights, of_weights)

        return _as(x, y), backward

    return normalized(x, *(each for each in (gamma, beta) if each is not None))


def rms_normalization(x: Tensor, scale: Tensor, epsilon: float) -> Tensor:
    """Returns `x / √(mean(x²) + ε) · scale` over the last axis, computed in float32 or more.

    Args:
        x: float `(..., D)`.
        scale: float `(D,)`.
        epsilon: float > 0.

    Returns:
        `(..., D)` of the dtype of `x`.

    Example:

    >>> import numpy as np
    >>> x = np.array([[3.0, 4.0]], "float32")
    >>> np.array(rms_normalization(x, np.array([1.0, 2.0], "float32"), 1e-6)).round(3).tolist()
    [[0.8489999771118164, 2.263000011444092]]

    Reference: Zhang and Sennrich, arXiv 1910.07467, equation 4. With h, g and s as in `layer_normalization`:
    `dx = (s - h mean(s h)) / √(mean(x²) + ε)`.
    """

    @ops.custom_gradient
    def normalized(x: Tensor, scale: Tensor) -> tuple[Tensor, Callable[..., tuple[Tensor, ...]]]:
        inverse = ops.rsqrt(ops.mean(ops.square(_wide(x)), axis=-1, keepdims=True) + epsilon)

        def backward(*arguments: Tensor, upstream: Tensor | None = None) -> tuple[Tensor, ...]:
            gradient = _wide(arguments[0] if upstream is None else upstream)
            h = _wide(x) * inverse
            s = gradient * _as(h, scale)
            of_h = s - h * ops.mean(s * h, axis=-1, keepdims=True)
            return _as(x, of_h * inverse), _as(scale, _over_rows(gradient * h))

        y = _wide(x) * inverse
        return _as(x, y * _as(y, scale)), backward

    return normalized(x, scale)


def _wide(x: Tensor) -> Tensor:
    return x if keras.backend.standardize_dtype(x.dtype) == "float64" else ops.cast(x, "float32")


def _as(like: Tensor, x: Tensor) -> Tensor:
    return ops.cast(x, like.dtype)


def _scaled(x: Tensor, scale: Tensor | None) -> Tensor:
    return x if scale is None else x * scale


def _over_rows(x: Tensor) -> Tensor:
    """Returns the sum over all axes but the last."""
    return ops.sum(x, axis=tuple(range(len(x.shape) - 1)))
