"""Monotonic rational-quadratic splines."""

from __future__ import annotations

import math

from keras import ops

from keras_transformer.utils.types import Tensor

_LEAST = 1e-3


def inverse_spline(values: Tensor, widths: Tensor, heights: Tensor, slopes: Tensor, bound: float) -> Tensor:
    """Inverse of a monotonic rational-quadratic spline with K bins, for each value a spline of its own.

    The spline maps [-bound, bound] to itself and is the identity elsewhere, with slope 1 at both ends.

    Args:
        values: float `(...)`: values of the splines.
        widths, heights: float `(..., K)`: logits of the shares of the bins of the interval; none is below 0.001.
        slopes: float `(..., K - 1)`: of the slope s between two bins, which is `0.001 + softplus(slopes)`.
        bound: float > 0.

    Returns:
        `(...)`: the arguments at which the splines have the values.

    Example:

    >>> import numpy as np
    >>> flat = math.log(math.exp(0.999) - 1)  # Of slope 1: with bins of equal size, the identity.
    >>> found = inverse_spline(np.array([0.25, 3.0]), np.zeros((2, 4)), np.zeros((2, 4)), np.full((2, 3), flat), 1.0)
    >>> np.array(found).round(6).tolist()
    [0.25, 3.0]

    Reference: Durkan et al., Neural Spline Flows, arXiv 1906.04032, section 3.1 and appendix A.1, equations 6 to 8.
    """
    values = ops.convert_to_tensor(values)
    widths, heights, slopes = (ops.cast(each, values.dtype) for each in (widths, heights, slopes))
    left, widths = _bins(widths, bound)
    low, heights = _bins(heights, bound)
    ends = ops.ones_like(slopes[..., :1])
    slopes = ops.concatenate([ends, _LEAST + ops.softplus(slopes), ends], axis=-1)
    inside = ops.clip(values, -bound, bound)
    chosen = _chosen(inside, low)

    def of_bin(numbers: Tensor) -> Tensor:
        return ops.sum(ops.where(chosen, numbers, ops.zeros_like(numbers)), axis=-1)

    width, height, mean_slope = of_bin(widths), of_bin(heights), of_bin(heights / widths)
    first, second = of_bin(slopes[..., :-1]), of_bin(slopes[..., 1:])
    above = inside - of_bin(low)
    bend = above * (first + second - 2.0 * mean_slope)
    a = height * (mean_slope - first) + bend
    b = height * first - bend
    c = -mean_slope * above
    # Rounding may make it negative, where both roots are one.
    root = ops.sqrt(ops.maximum(ops.square(b) - 4.0 * a * c, 0.0))
    found = of_bin(left) + width * (2.0 * c) / (-b - root)
    return ops.where(ops.abs(values) <= bound, found, values)


def _bins(logits: Tensor, bound: float) -> tuple[Tensor, Tensor]:
    """Returns where the bins begin and their sizes, both `(..., K)`."""
    count = logits.shape[-1]
    if _LEAST * count > 1.0:
        raise ValueError(f"At most {math.floor(1 / _LEAST)} bins are supported. Received: {count}")
    shares = _LEAST + (1.0 - _LEAST * count) * ops.softmax(logits, axis=-1)
    inner = 2.0 * bound * ops.cumsum(shares, axis=-1)[..., :-1] - bound
    end = ops.full_like(shares[..., :1], bound)
    edges = ops.concatenate([-end, inner, end], axis=-1)
    return edges[..., :-1], edges[..., 1:] - edges[..., :-1]


def _chosen(values: Tensor, low: Tensor) -> Tensor:
    """Returns the bin of each value, boolean `(..., K)`, True for one bin."""
    reached = ops.expand_dims(values, -1) >= low
    last = ops.zeros_like(reached[..., :1])
    return ops.logical_and(reached, ops.logical_not(ops.concatenate([reached[..., 1:], last], axis=-1)))
