"""Integer weights with scales, by channel or by block, in numpy."""

import numpy as np

# Scales that are tried for each block, as shares of the one that clips nothing. With few bits, clipping the largest
# number can make the others more exact.
_SHRINK = np.linspace(0.7, 1.0, 13)


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
