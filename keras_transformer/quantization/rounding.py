"""Rounding to the nearest integers of a scheme, with the scales of the least error."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from keras_transformer.quantization.blocks import Blocks
from keras_transformer.quantization.errors import WeightQuantizationError
from keras_transformer.quantization.scheme import WeightScheme

# Scales that are tried, as shares of the one that cuts nothing off: with few bits, cutting the largest numbers off can make
# the others more exact. The least integer is further from zero than the largest.
_SHARES = {2: np.linspace(0.3, 1.0, 29), 3: np.linspace(0.5, 1.0, 26), 4: np.linspace(0.6, 1.0, 21), 8: np.ones(1)}


def round_rows(rows: np.ndarray, scheme: WeightScheme, importance: np.ndarray | None = None) -> Blocks:
    """The rows of a weight in the integers of a scheme.

    Args:
        rows: float `(N, K)`.
        scheme: `WeightScheme`.
        importance: float `(K,)`: the weight of the squared error of each column, such as the mean square of the activation
            that multiplies it; equal when None.

    Returns:
        `Blocks`.

    Raises:
        WeightQuantizationError: K is no multiple of the block size.

    Example:

    >>> round_rows(np.array([[1.0, -2.0, 0.5, 0.25] * 8]), WeightScheme(bits=4)).values[0, :4].tolist()
    [1.0, -2.0, 0.5, 0.25]
    """
    blocked = in_blocks(rows, scheme)
    shape = (1, *blocked.shape[1:])
    weight = np.ones(shape, "float32") if importance is None else np.asarray(importance, "float32").reshape(shape)
    scale, minimum = best_scales(blocked, scheme, weight)
    return blocks_of(codes_of(blocked, scale, minimum, scheme), scale, minimum, scheme)


def in_blocks(rows: np.ndarray, scheme: WeightScheme) -> np.ndarray:
    """Rows `(N, K)` as blocks, float32 `(N, blocks, numbers of a block)`.

    Raises:
        WeightQuantizationError: K is no multiple of the block size.
    """
    count, width = rows.shape
    block = scheme.block_size or width
    if width % block:
        raise WeightQuantizationError(f"rows of {width} numbers are no whole blocks of {block}")
    return np.asarray(rows, "float32").reshape(count, width // block, block)


def best_scales(
    blocked: np.ndarray, scheme: WeightScheme, weight: np.ndarray, shares: Sequence[float] | None = None
) -> tuple[np.ndarray, np.ndarray | None]:
    """The scales and minima with the least squared error among those that are tried, each followed by a least-squares fit.

    Args:
        blocked: float32 `(N, blocks, numbers of a block)`.
        scheme: `WeightScheme`.
        weight: float32 that broadcasts to it: the weights of the squared errors.
        shares: the scales to try, as shares of the one that cuts nothing off; None: those of the number of bits.

    Returns:
        `(scale, minimum)`: float32 `(N, blocks)`, and the same or None.
    """
    least = np.full(blocked.shape[:2], np.inf, "float32")
    best: tuple[np.ndarray, np.ndarray | None] = np.ones(blocked.shape[:2], "float32"), None
    for share in _SHARES[scheme.bits] if shares is None else shares:
        for scale, minimum in _candidates(blocked, scheme, weight, np.float32(share)):
            found = values_of(codes_of(blocked, scale, minimum, scheme), scale, minimum)
            error = (weight * np.square(found - blocked)).sum(axis=-1)
            is_better = error < least
            least = np.where(is_better, error, least)
            kept = None if minimum is None else _where(is_better, minimum, best[1])
            best = np.where(is_better, scale, best[0]), kept
    return best


def _where(condition, chosen, other):
    return chosen if other is None else np.where(condition, chosen, other)


def _candidates(blocked, scheme, weight, share):
    """Scales and minima for a share of the range, and those fitted to their codes."""
    if scheme.has_minimum:
        low, high = blocked.min(axis=-1), blocked.max(axis=-1)
        span = (high - low) * share
        plain = scheme.round_scale(span / scheme.highest), half((low + high - span) / 2)
    else:
        plain = scheme.round_scale(np.abs(blocked).max(axis=-1) / scheme.highest * share), None
    yield plain
    if scheme.bits < 8:
        yield _fitted(blocked, codes_of(blocked, *plain, scheme), scheme, weight)


def _fitted(blocked, codes, scheme, weight):
    """Scales and minima with the least squared error for given codes."""
    if not scheme.has_minimum:
        product, square = (weight * codes * blocked).sum(axis=-1), (weight * np.square(codes)).sum(axis=-1)
        return scheme.round_scale(np.maximum(product, 0) / np.where(square == 0, 1, square)), None
    total = np.broadcast_to(weight, blocked.shape).sum(axis=-1)
    total = np.where(total == 0, 1, total)
    center, mean = (weight * codes).sum(axis=-1) / total, (weight * blocked).sum(axis=-1) / total
    distance = codes - center[..., None]
    variance = (weight * np.square(distance)).sum(axis=-1)
    slope = (weight * distance * (blocked - mean[..., None])).sum(axis=-1) / np.where(variance == 0, 1, variance)
    scale = scheme.round_scale(np.maximum(slope, 0))
    return scale, half(mean - scale * center)


def half(minimum: np.ndarray) -> np.ndarray:
    """Minima, float32, with the precision that files have: that of float16."""
    return np.asarray(minimum, "float16").astype("float32")


def codes_of(blocked: np.ndarray, scale: np.ndarray, minimum: np.ndarray | None, scheme: WeightScheme) -> np.ndarray:
    """The nearest integers q of blocks, float32, by scales and minima `(N, blocks)`."""
    distance = blocked if minimum is None else blocked - minimum[..., None]
    return np.clip(np.round(distance / scale[..., None]), scheme.lowest, scheme.highest)


def values_of(q: np.ndarray, scale: np.ndarray, minimum: np.ndarray | None) -> np.ndarray:
    """The numbers that integers q of blocks stand for, by scales and minima `(N, blocks)`."""
    values = q * scale[..., None]
    return values if minimum is None else values + minimum[..., None]


def blocks_of(q: np.ndarray, scale: np.ndarray, minimum: np.ndarray | None, scheme: WeightScheme) -> Blocks:
    """`Blocks` of integers q `(N, blocks, numbers of a block)`, which may be of any dtype."""
    codes = (q + scheme.zero).astype("uint8")
    kind = "float32" if scheme.block_size is None else "float16"
    halves = None if minimum is None else minimum.astype("float16")
    return Blocks(codes, scale.astype(kind), halves, scheme.zero, scheme.stored_bits)
