"""Quantization into ggml's super-blocks of 256 numbers, which the `gguf` package reads and does not write.

A super-block has a half for the scales of its sub-blocks, and in Q4_K and Q5_K another one for their minima; a sub-block has
these as small integers: `x = d * s * q - e * m` with sub-blocks of 32, in Q6_K `x = d * s * (q - 32)` with sub-blocks of 16.

A sub-block's scale is searched: the numbers are rounded for each of several ranges, and scale and minimum have the least
weighted squared error for these integers. Larger numbers weigh more. A better minimum is the lower end of the ranges that
follow. Then all numbers are rounded once more, to the scales as they are stored.

Reference: the layouts of Q4_K, Q5_K and Q6_K in ggml; as there, the ranges and weights of the search.
"""

from __future__ import annotations

import numpy as np

SUPER_BLOCK = 256
_SUB, _SMALL_SUB = 32, 16
_MOST_SCALE = 63  # Of 6 bits.
# Ranges that are tried, as codes more than the highest one.
_RANGES = {15: -1 + 0.1 * np.arange(21), 31: -0.5 + 0.1 * np.arange(16)}
_WIDENINGS = 0.1 * np.array(sorted(range(-9, 10), key=abs))
_LEAST = 1e-15
# Numbers that are quantized at a time: each takes several times its memory.
_MOST = 2**21


def quantize(rows: np.ndarray, kind: str) -> np.ndarray:
    """Rows in super-blocks.

    Args:
        rows: float array `(..., K)`, K a multiple of 256.
        kind: "Q4_K", "Q5_K" or "Q6_K".

    Returns:
        uint8 array `(..., bytes of a row)`.

    Raises:
        ValueError: K is no multiple of 256.

    Example:

    >>> quantize(np.ones((3, 512), "float32"), "Q4_K").shape
    (3, 288)
    """
    if rows.shape[-1] % SUPER_BLOCK:
        raise ValueError(f"rows of {kind} must be multiples of {SUPER_BLOCK}. Received: {rows.shape}")
    blocks = np.asarray(rows, "float32").reshape(-1, SUPER_BLOCK)
    step = _MOST // SUPER_BLOCK
    parts = [_KINDS[kind](blocks[start : start + step]) for start in range(0, len(blocks), step)]
    return np.concatenate(parts).reshape(*rows.shape[:-1], -1)


def _with_minima(blocks: np.ndarray, highest: int) -> tuple[np.ndarray, np.ndarray]:
    """The head of each super-block, `(n, 16)` bytes, and its codes, `(n, 8, 32)`."""
    subs = blocks.reshape(len(blocks), -1, _SUB)
    scale, low = _fitted(subs, highest)
    unit, scales = _in_6_bits(scale)
    low_unit, lows = _in_6_bits(low)
    steps, shifts = unit.astype("float32") * scales, low_unit.astype("float32") * lows
    codes = _rounded((subs + shifts[..., None]) * _inverse(steps)[..., None], 0, highest)
    head = np.concatenate([unit.view("uint8"), low_unit.view("uint8"), _pack_6_bits(scales, lows)], axis=1)
    return head, codes.astype("uint8")


def _fitted(x: np.ndarray, highest: int) -> tuple[np.ndarray, np.ndarray]:
    """Scales and minima `(n, s)` of sub-blocks `(n, s, 32)`; a minimum is subtracted, and not negative."""
    weights = np.sqrt(np.square(x).mean(axis=-1, keepdims=True)) + np.abs(x)
    total, total_x = weights.sum(axis=-1), (weights * x).sum(axis=-1)
    low, high = np.minimum(x.min(axis=-1), 0), x.max(axis=-1)
    codes = _spread(x, low, high, highest)
    plain = ((high - low) / highest, low)
    best = _better((*plain, np.full(low.shape, np.inf, "float32")), plain, weights, codes, x)
    for more in _RANGES[highest]:
        codes = _spread(x, best[1], high, highest + more)
        np.clip(codes, 0, highest, out=codes)
        weighted = weights * codes
        sum_q, sum_q2, sum_xq = weighted.sum(axis=-1), (weighted * codes).sum(axis=-1), (weighted * x).sum(axis=-1)
        inverse = _inverse(total * sum_q2 - sum_q * sum_q)
        scale = (total * sum_xq - total_x * sum_q) * inverse
        shift = (sum_q2 * total_x - sum_q * sum_xq) * inverse
        is_above = shift > 0
        scale, shift = np.where(is_above, sum_xq * _inverse(sum_q2), scale), np.where(is_above, 0, shift)
        best = _better(best, (scale, shift), weights, codes, x)
    return best[0], -best[1]


def _spread(x: np.ndarray, low: np.ndarray, high: np.ndarray, highest: float) -> np.ndarray:
    """Whole numbers from 0, for `low`, to `highest`."""
    return np.rint((x - low[..., None]) * (np.float32(highest) * _inverse(high - low))[..., None])


def _better(
    best: tuple[np.ndarray, ...], tried: tuple[np.ndarray, ...], weights: np.ndarray, codes: np.ndarray, x: np.ndarray
) -> tuple[np.ndarray, ...]:
    scale, shift = tried
    error = (weights * np.square(scale[..., None] * codes + shift[..., None] - x)).sum(axis=-1)
    is_better = (error < best[2]) & (scale > 0)
    return tuple(np.where(is_better, new, old) for new, old in zip((scale, shift, error), best, strict=True))


def _in_6_bits(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Numbers `(n, 8)`, none of them negative, as a half `(n, 1)` times integers up to 63."""
    most = numbers.max(axis=-1, keepdims=True)
    integers = _rounded(numbers * (_MOST_SCALE * _inverse(most)), 0, _MOST_SCALE)
    return (most / _MOST_SCALE).astype("float16"), integers.astype("uint8")


def _pack_6_bits(scales: np.ndarray, lows: np.ndarray) -> np.ndarray:
    """Eight scales and eight minima in 12 bytes: the upper bits of the last four of each are in the bytes of the first."""
    first = [each[:, :4] | (each[:, 4:] >> 4) << 6 for each in (scales, lows)]
    return np.concatenate([*first, scales[:, 4:] & 15 | (lows[:, 4:] & 15) << 4], axis=1)


def _q4_k(blocks: np.ndarray) -> np.ndarray:
    head, codes = _with_minima(blocks, 15)
    return np.concatenate([head, _pack_pairs(codes)], axis=1)


def _q5_k(blocks: np.ndarray) -> np.ndarray:
    head, codes = _with_minima(blocks, 31)
    fifth = (codes >> 4) << np.arange(8, dtype="uint8")[:, None]
    return np.concatenate([head, np.bitwise_or.reduce(fifth, axis=1), _pack_pairs(codes & 15)], axis=1)


def _pack_pairs(codes: np.ndarray) -> np.ndarray:
    """Codes `(n, 8, 32)` of 4 bits: two sub-blocks share the bytes `(n, 128)`."""
    return (codes[:, 0::2] | codes[:, 1::2] << 4).reshape(len(codes), -1)


def _q6_k(blocks: np.ndarray) -> np.ndarray:
    subs = blocks.reshape(len(blocks), -1, _SMALL_SUB)
    scale = _symmetric_scale(subs)
    peak = np.take_along_axis(scale, np.abs(scale).argmax(axis=-1)[:, None], axis=-1)
    # The largest scale becomes -128, the integer of the largest magnitude.
    unit = (peak / -128).astype("float16")
    scales = _rounded(scale * (-128 * _inverse(peak)), -128, 127)
    steps = unit.astype("float32") * scales
    codes = (_rounded(subs * _inverse(steps)[..., None], -32, 31) + 32).astype("uint8")
    halves = codes.reshape(len(codes), 2, 4, 32)
    low = halves[:, :, :2] & 15 | (halves[:, :, 2:] & 15) << 4
    high = np.bitwise_or.reduce((halves >> 4) << np.arange(0, 8, 2, dtype="uint8")[:, None], axis=2)
    parts = [low, high, scales.astype("int8").view("uint8"), unit.view("uint8")]
    return np.concatenate([part.reshape(len(codes), -1) for part in parts], axis=1)


def _symmetric_scale(x: np.ndarray) -> np.ndarray:
    """Scales `(n, s)`, with their signs, of sub-blocks `(n, s, 16)` in codes from -32 to 31."""
    weights = np.square(x)
    peak = np.take_along_axis(x, np.abs(x).argmax(axis=-1)[..., None], axis=-1)
    best, most = np.zeros(x.shape[:-1], "float32"), np.zeros(x.shape[:-1], "float32")
    for more in _WIDENINGS:
        codes = _rounded(x * (np.float32(-32 - more) * _inverse(peak)), -32, 31)
        sum_xq, sum_q2 = (weights * x * codes).sum(axis=-1), (weights * np.square(codes)).sum(axis=-1)
        # The part of the weighted squares that the best scale for these codes explains.
        explained = np.square(sum_xq) * _inverse(sum_q2)
        best = np.where(explained > most, sum_xq * _inverse(sum_q2), best)
        most = np.maximum(explained, most)
    return best


def _rounded(numbers: np.ndarray, least: int, most: int) -> np.ndarray:
    return np.clip(np.rint(numbers), least, most)


def _inverse(numbers: np.ndarray) -> np.ndarray:
    """1 / x, or 0 where x is 0 or too small for it."""
    is_zero = np.abs(numbers) < np.float32(_LEAST**2)
    return np.where(is_zero, 0, 1 / np.where(is_zero, 1, numbers)).astype("float32")


_KINDS = {"Q4_K": _q4_k, "Q5_K": _q5_k, "Q6_K": _q6_k}
