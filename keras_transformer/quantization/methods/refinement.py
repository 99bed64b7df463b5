"""Integers and scales that are improved in turns, by the squared error of the outputs."""

from __future__ import annotations

import numpy as np

from keras_transformer.quantization.rounding import values_of
from keras_transformer.quantization.scheme import WeightScheme

# Columns whose changes reach the others in one product, and rows whose scales are fitted at once.
_COLUMNS, _ROWS = 64, 256


def fitted_scales(
    rows: np.ndarray, q: np.ndarray, minimum: np.ndarray | None, scheme: WeightScheme, hessian: np.ndarray
) -> tuple[np.ndarray, np.ndarray | None]:
    """The scales and minima of a row with the least `(w - ŵ) H (w - ŵ)ᵀ` for given integers: a linear system for each row.

    Args:
        rows: float `(N, K)`: the weights w.
        q: float `(N, blocks, numbers of a block)`: the integers of ŵ.
        minimum: float `(N, blocks)` where blocks have minima, or None.
        scheme: `WeightScheme`.
        hessian: float64 `(K, K)`.

    Returns:
        `(scale, minimum)`, with the precision of files; a scale that is not positive is NaN.

    Example:

    >>> q, scheme = np.arange(-16.0, 16.0).reshape(1, 1, 32) / 2, WeightScheme()
    >>> fitted_scales(0.5 * q.reshape(1, 32), q, None, scheme, np.eye(32))[0].tolist()
    [[0.5]]
    """
    blocks = q.shape[1]
    features = q[:, :, None] if minimum is None else np.stack([q, np.ones_like(q)], axis=2)
    small = hessian.astype("float32")
    found = [
        _solved(rows[start : start + _ROWS], features[start : start + _ROWS], small)
        for start in range(0, len(rows), _ROWS)
    ]
    solution = np.concatenate(found).reshape(len(rows), blocks, -1)
    scale = np.where(solution[..., 0] > 0, scheme.round_scale(np.abs(solution[..., 0])), np.nan)
    return scale.astype("float32"), None if minimum is None else solution[..., 1].astype("float16").astype("float32")


def _solved(rows, features, hessian):
    """The least-squares factors of features `(n, blocks, kinds, size)` that are zero outside of their blocks."""
    count, blocks, kinds, size = features.shape
    matrix, vector = np.empty((count, blocks, kinds, blocks, kinds)), np.zeros((count, blocks, kinds))
    by_block = np.ascontiguousarray(features.transpose(1, 0, 2, 3)).reshape(blocks, -1, size)
    for block in range(blocks):
        columns = slice(block * size, (block + 1) * size)
        # Each feature times the part of the Hessian between its block and this one.
        moved = np.matmul(by_block, hessian[:, columns].reshape(blocks, size, size)).reshape(blocks, count, kinds, size)
        matrix[:, :, :, block] = np.einsum("bnks,nls->nbkl", moved, features[:, block])
        vector += np.einsum("bnks,ns->nbk", moved, rows[:, columns])
    matrix, vector = matrix.reshape(count, blocks * kinds, -1), vector.reshape(count, -1, 1)
    matrix += np.eye(blocks * kinds) * (1e-6 * np.einsum("nii->n", matrix)[:, None, None] / (blocks * kinds) + 1e-30)
    return np.linalg.solve(matrix, vector)


def swept(
    rows: np.ndarray,
    q: np.ndarray,
    scale: np.ndarray,
    minimum: np.ndarray | None,
    scheme: WeightScheme,
    hessian: np.ndarray,
) -> np.ndarray:
    """The integers after each column was rounded again, given all others.

    Example:

    >>> rows, scale = np.full((1, 32), 0.4), np.ones((1, 1), "float32")
    >>> q = swept(rows, np.zeros((1, 1, 32)), scale, None, WeightScheme(), np.ones((32, 32)))
    >>> q.sum().item()  # 12.8: only the sum counts.
    13.0
    """
    size = q.shape[2]
    values = _values(q, scale, minimum)
    small = hessian.astype("float32")
    columns, targets, q = values.T.copy(), rows.T, np.ascontiguousarray(q.reshape(len(rows), -1).T)
    slopes = small @ (columns - targets)
    for start in range(0, len(columns), _COLUMNS):
        part = slice(start, min(start + _COLUMNS, len(columns)))
        local, changes = slopes[part].copy(), np.empty_like(columns[part])
        for j in range(part.stop - start):
            at, block = start + j, (start + j) // size
            low = 0 if minimum is None else minimum[:, block]
            wished = columns[at] - local[j] / small[at, at]
            q[at] = np.clip(np.round((wished - low) / scale[:, block]), scheme.lowest, scheme.highest)
            changes[j] = q[at] * scale[:, block] + low - columns[at]
            local += small[part, at, None] * changes[j]
        slopes += small[:, part] @ changes
    return q.T.reshape(len(rows), -1, size)


def refined(
    rows: np.ndarray,
    q: np.ndarray,
    scale: np.ndarray,
    minimum: np.ndarray | None,
    scheme: WeightScheme,
    hessian: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """One turn of `fitted_scales` and `swept`; rows that it does not improve stay as they are."""
    new_scale, new_minimum = fitted_scales(rows, q, minimum, scheme, hessian)
    ratio = new_scale / scale
    is_kept = ~((ratio > 0.5) & (ratio < 2)).all(axis=1, keepdims=True)
    new_scale = np.where(is_kept, scale, new_scale)
    new_minimum = None if minimum is None or new_minimum is None else np.where(is_kept, minimum, new_minimum)
    new_q = swept(rows, q, new_scale, new_minimum, scheme, hessian)
    small = hessian.astype("float32")
    before, after = (
        _error(_values(*each) - rows, small) for each in ((q, scale, minimum), (new_q, new_scale, new_minimum))
    )
    better = (after < before)[:, None]
    low = None if minimum is None or new_minimum is None else np.where(better, new_minimum, minimum)
    return np.where(better[..., None], new_q, q), np.where(better, new_scale, scale), low


def _values(q, scale, minimum):
    return values_of(q, scale, minimum).reshape(len(q), -1).astype("float32")


def _error(change, hessian):
    return np.einsum("nk,nk->n", change @ hessian, change)
