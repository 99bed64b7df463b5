"""Rounding in the forward pass, with gradients that training can follow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from keras import ops

from keras_transformer.quantization.scheme import WeightScheme
from keras_transformer.utils.types import Tensor

# The steps of a range in 8 bits.
LEVELS = 255
# The least scale in training. With 8 significant bits it and all above it are exact in half precision.
LEAST = 2.0**-17
# The least magnitude of a minimum: the least normal number of half precision. Smaller ones are 0.
_LEAST_MINIMUM = 2.0**-14
# Shares of the range that `searched_scale` tries, by bits.
_SHARES = {2: np.linspace(0.3, 1.0, 8), 3: np.linspace(0.5, 1.0, 6), 4: np.linspace(0.6, 1.0, 5), 8: np.ones(1)}


def fake_quantized(x: Tensor, step: Tensor, lowest: int, highest: int, axis: int) -> Tensor:
    """Rounds numbers to `step * q`, where `q = clip(round(x / step), lowest, highest)`, with the gradients of LSQ.

    The gradient of x is that of the output where x is within the range, and 0 outside. The gradient of the step is
    `q - x / step` within the range and q outside, times that of the output, summed over the numbers that share the step.

    Args:
        x: float32.
        step: float32, of the shape of x with 1 at `axis`; positive.
        lowest, highest: int.
        axis: int. The axis of the numbers that share a step.

    Returns:
        float32, of the shape of x.

    Example:

    >>> fake_quantized(ops.array([[0.3, 0.9, 9.0]]), ops.array([[0.5]]), -2, 1, axis=1).numpy().tolist()
    [[0.5, 0.5, 0.5]]

    Reference: Esser et al., Learned Step Size Quantization, arXiv 1902.08153, equations 1 to 3 and 5.
    """

    @ops.custom_gradient
    def rounded(x, step):
        ratio = x / step
        codes = ops.clip(ops.round(ratio), lowest, highest)

        def gradient(*arguments, upstream=None):
            upstream = arguments[0] if upstream is None else upstream
            inside = ops.logical_and(ratio >= lowest, ratio <= highest)
            of_step = upstream * ops.where(inside, codes - ratio, codes)
            return ops.where(inside, upstream, 0.0), ops.sum(of_step, axis=axis, keepdims=True)

        return codes * step, gradient

    return rounded(x, step)


def fake_quantized_within(x: Tensor, ends: Tensor) -> Tensor:
    """Rounds activations to `(q - zero) * scale`, with q from -128 to 127, and `scale = (largest - least) / 255`.

    `zero = round(-128 - least / scale)`, so that 0 is one of the numbers. The gradient of x is that of the output within the
    range, and 0 outside. That of an end is the sum of those of the outputs beyond it; within the range, the gradient of the
    scale is `round(x / scale) - x / scale`.

    Args:
        x: float32.
        ends: float32 `(2,)`: the least number, at most 0, and the largest one, at least 0.

    Returns:
        float32, of the shape of x.

    Example:

    >>> fake_quantized_within(ops.array([-3.0, 0.9, 127.4, 200.0]), ops.array([0.0, 255.0])).numpy().tolist()
    [0.0, 1.0, 127.0, 200.0]

    Reference: Jacob et al., arXiv 1712.05877, equations 12 and 13; Bhalgat et al., arXiv 2004.09576, equations 3 and 4.
    """

    @ops.custom_gradient
    def rounded(x, ends):
        scale = ops.maximum((ends[1] - ends[0]) / LEVELS, 1e-9)
        zero = ops.round(-128 - ends[0] / scale)
        ratio = x / scale + zero
        codes = ops.clip(ops.round(x / scale) + zero, -128, 127)

        def gradient(*arguments, upstream=None):
            upstream = arguments[0] if upstream is None else upstream
            # Half a step more: rounding may put the largest number just above the range that is made of it.
            below, above = ratio < -128.5, ratio > 127.5
            inside = ops.logical_not(ops.logical_or(below, above))
            error = ops.where(inside, codes - ratio, 0.0) / LEVELS
            of_ends = [ops.where(below, 1.0, -error), ops.where(above, 1.0, error)]
            return ops.where(inside, upstream, 0.0), ops.stack([ops.sum(upstream * each) for each in of_ends])

        return (codes - zero) * scale, gradient

    return rounded(x, ends)


def rounded_by_channel(weight: Tensor, channels: Sequence[int]) -> Tensor:
    """Rounds a weight to 8 bits with a scale for each channel, `max |w| / 127`; the gradient is that of the identity.

    Where a norm that follows multiplies each channel by a factor, files have the same integers, with scales times its size.

    Args:
        weight: float32.
        channels: the axes of the channels.

    Example:

    >>> rounded_by_channel(ops.array([[0.9921875, 1.984375], [0.3, -0.02]]), [1]).numpy().tolist()
    [[0.9921875, 1.984375], [0.296875, -0.015625]]
    """
    rank = len(weight.shape)
    kept = {axis % rank for axis in channels}
    axes = tuple(axis for axis in range(rank) if axis not in kept)

    def nearest(x):
        scale = ops.maximum(ops.max(ops.abs(x), axis=axes, keepdims=True) / 127, 1e-12)
        return ops.round(x / scale) * scale

    return straight_through(nearest, weight)


def learned_step(relative: Tensor, initial: Tensor, scheme: WeightScheme, gradient_scale: float) -> Tensor:
    """The step `relative * initial`, with the precision of files.

    The gradient of the relative step is that of the step, times `gradient_scale / initial`. So gradient descent changes the
    step as if the step were the variable, with the gradient scale of LSQ; and Adam, which disregards the scale of gradients,
    changes the step in proportion to its size, which is a thousandth for some schemes, and a tenth for others.

    Args:
        relative: float32: the variable.
        initial: float32 of the same shape: positive, and not trained.
        scheme: `WeightScheme`.
        gradient_scale: float.
    """

    @ops.custom_gradient
    def product(relative, initial):
        def gradient(*arguments, upstream=None):
            upstream = arguments[0] if upstream is None else upstream
            return upstream * gradient_scale / initial, ops.zeros_like(initial)

        return stored_scale(relative * initial, scheme), gradient

    return product(relative, initial)


def straight_through(function: Callable[[Tensor], Tensor], x: Tensor, scale: float = 1.0) -> Tensor:
    """Returns `function(x)`, of the shape of x, with the gradient of `scale * x`.

    Example:

    >>> straight_through(ops.round, ops.array([0.7, 2.2])).numpy().tolist()
    [1.0, 2.0]
    """

    @ops.custom_gradient
    def applied(x):
        def gradient(*arguments, upstream=None):
            return (arguments[0] if upstream is None else upstream) * scale

        return function(x), gradient

    return applied(x)


def stored_scale(scale: Tensor, scheme: WeightScheme) -> Tensor:
    """Scales, float32, with the precision that files have: the values of `WeightScheme.round_scale`, at least `LEAST`.

    Example:

    >>> stored_scale(ops.array([0.3, -1.0]), WeightScheme()).numpy().tolist()
    [0.30078125, 7.62939453125e-06]
    """
    scale = ops.maximum(scale, LEAST)
    # Not by casts to bfloat16: XLA leaves out those that only lose precision.
    return scale if scheme.block_size is None else _without_bits(scale, 16)


def stored_minimum(minimum: Tensor) -> Tensor:
    """Minima, float32, with the precision that files have: that of float16.

    Example:

    >>> stored_minimum(ops.array([-0.3, 1e-6])).numpy().tolist()
    [-0.300048828125, 0.0]
    """
    rounded = ops.sign(minimum) * _without_bits(ops.abs(minimum), 13)
    return ops.where(ops.abs(minimum) < _LEAST_MINIMUM, 0.0, rounded)


def _without_bits(x, count):
    """Rounds positive float32 numbers to the nearest ones whose last `count` bits are 0; ties to even."""
    bits = ops.view(x, "int32")
    odd = ops.bitwise_and(ops.right_shift(bits, count), 1)
    bits = bits + (1 << count - 1) - 1 + odd
    return ops.view(ops.left_shift(ops.right_shift(bits, count), count), "float32")


def searched_scale(x: Tensor, scheme: WeightScheme, axis: int) -> tuple[Tensor, Tensor | None]:
    """Scales and minima of the least squared error among a few shares of the range of the numbers.

    Args:
        x: float32.
        scheme: `WeightScheme`.
        axis: int. The axis of the numbers that share a scale.

    Returns:
        `(scale, minimum)`: float32, of the shape of x with 1 at `axis`; the same, or None.
    """
    reduce: dict[str, object] = {"axis": axis, "keepdims": True}
    low = ops.min(x, **reduce) if scheme.has_minimum else None
    span = ops.max(ops.abs(x), **reduce) if low is None else ops.max(x, **reduce) - low
    best: Any = None
    least: Any = None
    for share in _SHARES[scheme.bits]:
        scale = stored_scale(span * float(share / scheme.highest), scheme)
        minimum = None if low is None else stored_minimum(low + span * float((1 - share) / 2))
        found = scale * codes_of(x, scale, minimum, scheme)
        error = ops.sum(ops.square((found if minimum is None else found + minimum) - x), **reduce)
        if best is None:
            best, least = (scale, minimum), error
            continue
        is_less = error < least
        least = ops.minimum(error, least)
        best = ops.where(is_less, scale, best[0]), None if low is None else ops.where(is_less, minimum, best[1])
    return best


def codes_of(x: Tensor, scale: Tensor, minimum: Tensor | None, scheme: WeightScheme) -> Tensor:
    """The integers q of numbers, float32, by scales and minima that broadcast to them."""
    distance = x if minimum is None else x - minimum
    return ops.clip(ops.round(distance / scale), scheme.lowest, scheme.highest)


def int8_rounded(x: Tensor, scale: Tensor, lowest: int = -127) -> Tensor:
    """Rounds activations to `scale * q`, with q from `lowest` to 127; the gradient is that of the identity within the range.

    Args:
        x: float32.
        scale: float32 that broadcasts to it; positive, and without a gradient.
        lowest: int, -127 or -128. Default -127.
    """

    @ops.custom_gradient
    def rounded(x, scale):
        ratio = x / scale

        def gradient(*arguments, upstream=None):
            upstream = arguments[0] if upstream is None else upstream
            # Half a step more: rounding may put the largest number just above the range that is made of it.
            inside = ops.logical_and(ratio > lowest - 0.5, ratio < 127.5)
            return ops.where(inside, upstream, 0.0), ops.zeros_like(scale)

        return ops.clip(ops.round(ratio), lowest, 127) * scale, gradient

    return rounded(x, ops.stop_gradient(scale))
