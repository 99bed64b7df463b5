"""Integer weights with scales, by channel or by block, in numpy."""

from collections.abc import Callable

import numpy as np

# Scales that are tried for each block, as shares of the one that clips nothing. With few bits, clipping the largest
# number can make the others more exact.
_SHRINK = np.linspace(0.7, 1.0, 13)
_RANGES = (1.0, 0.93, 0.86)
# Numbers that are quantized at a time.
_MOST = 2**22


def _parts(count: int, width: int) -> list[slice]:
    """Slices of the rows `(count, width)` of a weight: each takes several times its memory while it is quantized."""
    step = max(_MOST // max(width, 1), 1)
    return [slice(start, start + step) for start in range(0, max(count, 1), step)]


def by_channel(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A matrix `(K, N)` in 8 bits, one scale for each column: `w = q * scale`.

    Args:
        matrix: float array `(K, N)`.

    Returns:
        `(q, scale)`: int8 `(K, N)`, float32 `(N,)`.

    Example:

    >>> by_channel(np.array([[1.27, -2.54], [0.63, 0.02]]))[0].tolist()
    [[127, -127], [63, 1]]
    """
    parts = [_by_channel(matrix[:, part]) for part in _parts(*matrix.shape[::-1])]
    return np.concatenate([q for q, _ in parts], axis=1), np.concatenate([scale for _, scale in parts])


def _by_channel(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    scale = _nonzero(np.abs(matrix).max(axis=0) / 127)
    return np.round(matrix / scale).astype("int8"), scale.astype("float32")


def by_block(rows: np.ndarray, bits: int, block_size: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows `(N, K)` in 4 or 8 bits, one scale for each `block_size` numbers of a row: `w = (q - 2**(bits - 1)) * scale`.

    The last block of a row is padded with zeros. In 4 bits the number of a block with the largest magnitude becomes the
    lowest code, which is one step further from zero than the highest, and the scale is the one of `_SHRINK` with the
    smallest squared error.

    Args:
        rows: float array `(N, K)`.
        bits: 4 or 8.
        block_size: int.

    Returns:
        `(q, scale)`: uint8 `(N, blocks, block_size)` of whole codes, float32 `(N, blocks)`.

    Example:

    >>> q, scale = by_block(np.array([[-1.0, 0.5, -0.25, 0.125]]), bits=4, block_size=2)
    >>> ((q - 8.0) * scale[..., None]).tolist()
    [[[-1.0, 0.5], [-0.25, 0.125]]]
    """
    parts = [_by_block(rows[part], bits, block_size) for part in _parts(*rows.shape)]
    return np.concatenate([q for q, _ in parts]), np.concatenate([scale for _, scale in parts])


def _by_block(rows: np.ndarray, bits: int, block_size: int) -> tuple[np.ndarray, np.ndarray]:
    count, width = rows.shape
    blocks = -(-width // block_size)
    padded = np.zeros((count, blocks * block_size), "float32")
    padded[:, :width] = rows
    blocked = padded.reshape(count, blocks, block_size)
    if bits == 8:
        scale = _nonzero(np.abs(blocked).max(axis=-1) / 127)
        return _codes(blocked, scale, bits), scale.astype("float32")
    peak = np.take_along_axis(blocked, np.abs(blocked).argmax(axis=-1)[..., None], axis=-1)[..., 0]
    return _best(blocked, _nonzero(-peak / 8), bits)


def by_offset_block(
    rows: np.ndarray, block_size: int, round_scale: Callable[[np.ndarray], np.ndarray] | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows `(N, K)` in 4 bits, one scale and one offset for each `block_size` numbers: `w = (q - 8) * scale + offset`.

    Numbers on such a lattice, as those of a checkpoint in Q4_1, keep their values up to the rounding of the scales.
    Otherwise scale and offset are a least-squares fit, for the best of several ranges.

    Args:
        rows: float array `(N, K)`.
        block_size: int.
        round_scale: function that rounds scales to the precision that a kernel has; to that of float16 when None.

    Returns:
        `(q, scale, offset)`: uint8 `(N, blocks, block_size)`, float16 `(N, blocks)` twice.

    Example:

    >>> q, scale, offset = by_offset_block(np.array([[1.0, 1.5, 2.0, 2.5]]), block_size=4)
    >>> ((q - 8.0) * scale[..., None] + offset[..., None]).round(2).tolist()
    [[[1.0, 1.5, 2.0, 2.5]]]
    """
    found = [_by_offset_block(rows[part], block_size, round_scale) for part in _parts(*rows.shape)]
    q, scale, offset = (np.concatenate(each) for each in zip(*found, strict=True))
    return q, scale, offset


def _by_offset_block(
    rows: np.ndarray, block_size: int, round_scale: Callable[[np.ndarray], np.ndarray] | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    count, width = rows.shape
    blocks = -(-width // block_size)
    padded = np.pad(np.asarray(rows, "float32"), ((0, 0), (0, blocks * block_size - width)), mode="edge")
    blocked = padded.reshape(count, blocks, block_size)
    low, high = blocked.min(axis=-1), blocked.max(axis=-1)
    middle, span = (low + high) / 2, _nonzero(high - low) / 15
    best = np.full(low.shape, np.inf, "float32")
    found: tuple[np.ndarray, ...] = (np.zeros(blocked.shape, "uint8"), np.ones_like(low), middle)
    for share in _RANGES:
        # The middle of the codes 0 to 15 is 7.5, half a step below 8.
        plain = _rounded(span * np.float32(share), middle + span * np.float32(share / 2), round_scale)
        for scale, offset in (plain, _rounded(*_fitted(blocked, _offset_codes(blocked, *plain)), round_scale)):
            codes = _offset_codes(blocked, scale, offset)
            error = np.square((codes - np.float32(8)) * scale[..., None] + offset[..., None] - blocked).sum(axis=-1)
            better = error < best
            best = np.where(better, error, best)
            kept = (better[..., None], better, better)
            found = tuple(map(np.where, kept, (codes, scale, offset), found))
    return found[0], found[1].astype("float16"), found[2].astype("float16")


def _offset_codes(blocked: np.ndarray, scale: np.ndarray, offset: np.ndarray) -> np.ndarray:
    return np.clip(np.round((blocked - offset[..., None]) / scale[..., None]) + 8, 0, 15).astype("uint8")


def _rounded(
    scale: np.ndarray, offset: np.ndarray, round_scale: Callable[[np.ndarray], np.ndarray] | None
) -> tuple[np.ndarray, np.ndarray]:
    """Scales and offsets with the precision of float16, or a lower one of the scales; no scale is below its least number."""
    scale = np.maximum(scale, np.float32(2.0**-22))
    scale = scale.astype("float16").astype("float32") if round_scale is None else round_scale(scale)
    return scale, offset.astype("float16").astype("float32")


def _fitted(blocked: np.ndarray, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scales and offsets with the least squared error for given codes."""
    numbers = codes - np.float32(8)
    center, mean = numbers.mean(axis=-1, keepdims=True), blocked.mean(axis=-1, keepdims=True)
    variance = np.square(numbers - center).sum(axis=-1)
    scale = ((numbers - center) * (blocked - mean)).sum(axis=-1) / _nonzero(variance)
    return scale, mean[..., 0] - scale * center[..., 0]


def pack_nibbles(codes: np.ndarray) -> np.ndarray:
    """Packs 4-bit codes two to a byte, those of even index in the low half: `(..., n)` to `(..., n / 2)`.

    Example:

    >>> pack_nibbles(np.array([1, 2, 15, 0], "uint8")).tolist()
    [33, 15]
    """
    return codes[..., 0::2] | codes[..., 1::2] << 4


def _best(blocked: np.ndarray, scale: np.ndarray, bits: int) -> tuple[np.ndarray, np.ndarray]:
    best_scale, best_error = scale, np.full(scale.shape, np.inf, "float32")
    for share in _SHRINK:
        tried = scale * share
        found = (_codes(blocked, tried, bits) - np.float32(1 << bits - 1)) * tried[..., None]
        error = np.square(found - blocked).sum(axis=-1)
        best_scale = np.where(error < best_error, tried, best_scale)
        best_error = np.minimum(error, best_error)
    return _codes(blocked, best_scale, bits), best_scale.astype("float32")


def _codes(blocked: np.ndarray, scale: np.ndarray, bits: int) -> np.ndarray:
    middle = 1 << bits - 1
    return np.clip(np.round(blocked / scale[..., None]) + middle, 0, 2 * middle - 1).astype("uint8")


def _nonzero(scale: np.ndarray) -> np.ndarray:
    return np.where(scale == 0, 1, scale)
