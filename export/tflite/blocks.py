"""4-bit blockwise quantization for XNNPACK: positive scales with the precision of bfloat16."""

import numpy as np

# Candidate scales of a block, as shares of the one without clipping: clipping outliers lowers the error of the others.
_SHRINK = np.linspace(0.7, 1.0, 11, dtype="float32")
_LOWEST, _HIGHEST = -8, 7


def positive_blocks(rows: np.ndarray, block_size: int) -> tuple[np.ndarray, np.ndarray]:
    """Quantizes rows to 4 bits, with one positive scale for each block of a row: `w = q * scale`.

    Args:
        rows: float array `(N, K)`; K is a multiple of `block_size`.
        block_size: int.

    Returns:
        `(q, scale)`: int8 `(N, K)` from -8 to 7, float32 `(N, K / block_size)`.

    Example:

    >>> q, scale = positive_blocks(np.array([[7.0, -3.0, 0.5, -0.5]], "float32"), block_size=2)
    >>> (q * scale.repeat(2, axis=1)).round(1).tolist()
    [[7.0, -3.0, 0.5, -0.5]]
    """
    blocked = rows.reshape(len(rows), -1, block_size).astype("float32")
    widest = np.abs(blocked).max(axis=-1) / _HIGHEST
    widest = np.where(widest == 0, 1, widest)
    best = np.full(widest.shape, np.inf, "float32")
    codes, scale = np.zeros(blocked.shape, "int8"), widest
    for share in _SHRINK:
        tried = bfloat16(widest * share)
        found = np.clip(np.round(blocked / tried[..., None]), _LOWEST, _HIGHEST)
        error = np.square(found * tried[..., None] - blocked).sum(axis=-1)
        better = error < best
        best, scale = np.where(better, error, best), np.where(better, tried, scale)
        codes[better] = found[better].astype("int8")
    return codes.reshape(rows.shape), scale


def bfloat16(array: np.ndarray) -> np.ndarray:
    """Rounds float32 values to the precision of bfloat16.

    Example:

    >>> bfloat16(np.array([1.001, 3.0])).tolist()
    [1.0, 3.0]
    """
    bits = array.astype("float32").view("uint32")
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).view("float32")
