"""GPTQ: each rounding error is compensated by the weights that are not yet rounded."""

from __future__ import annotations

import numpy as np

from keras_transformer.quantization.blocks import Blocks
from keras_transformer.quantization.errors import WeightQuantizationError
from keras_transformer.quantization.methods.method import Method
from keras_transformer.quantization.methods.refinement import refined
from keras_transformer.quantization.observation.statistics import Statistics
from keras_transformer.quantization.rounding import best_scales, blocks_of, in_blocks, round_rows
from keras_transformer.quantization.scheme import WeightScheme

ORDERS = ("activation", "block", None)
# Columns that are updated one by one; those behind them get the sum of their updates in one product.
_COLUMNS = 64


class GPTQ(Method):
    """Rounds columns one after the other, and changes those that follow so that the outputs stay: the least |(W - Q) X|².

    With the Hessian `H = X Xᵀ` and the upper Cholesky factor U of its inverse, `H⁻¹ = Uᵀ U`, the error of column j, divided
    by `U[j, j]`, times the row `U[j, j + 1:]` is subtracted from the columns behind it.

    Args:
        damping: float > 0. What is added to the diagonal of the Hessian, as a share of its mean. Default 0.05.
        order: "activation": columns with large activations come first, with scales found before; "block": so do blocks, and
            columns in each block, with the scales of a block found when its turn comes; None: columns as they are, scales as
            for "block". Weights of one scale for each row have it found before. Default "activation".
        sweeps: int >= 0. How often each column is rounded again, given all others, after the scales were fitted to the
            integers by least squares. Default 3.

    Raises:
        WeightQuantizationError: an argument is out of range.

    Example:

    >>> from keras_transformer.quantization import WeightScheme
    >>> statistics = Statistics(32)
    >>> statistics.add(np.ones((4, 32)))  # Only the sum of a row counts.
    >>> rows = np.linspace(0.0, 0.95, 32)[None] ** 2
    >>> nearest, gptq = (method.round(rows, WeightScheme(3), statistics) for method in (Method(), GPTQ()))
    >>> statistics.error(gptq.values - rows) < statistics.error(nearest.values - rows)
    True

    Reference: Frantar et al., GPTQ, arXiv 2210.17323, algorithm 1. Deviations: scales of the least squared error weighted by
    `1 / U[j, j]²`, instead of the range of the weights; blocks stay blocks of neighbors in every order; off-diagonals of the
    Hessian are shrunk, the more the less data there is; the sweeps.
    """

    def __init__(self, damping: float = 0.05, order: str | None = "activation", sweeps: int = 3) -> None:
        if not damping > 0:
            raise WeightQuantizationError(f"damping must be above 0. Received: {damping!r}")
        if order not in ORDERS:
            raise WeightQuantizationError(f"order must be one of {ORDERS}. Received: {order!r}")
        if sweeps < 0:
            raise WeightQuantizationError(f"sweeps must be at least 0. Received: {sweeps!r}")
        self.damping, self.order, self.sweeps = damping, order, sweeps

    def round(self, rows: np.ndarray, scheme: WeightScheme, statistics: Statistics | None = None) -> Blocks:
        if statistics is None or not statistics.mean_square.any():
            return round_rows(rows, scheme)
        hessian = shrunk(statistics.hessian, statistics.count)
        size = scheme.block_size or rows.shape[1]
        order = column_order(np.diagonal(hessian), size, self.order if scheme.block_size else "activation")
        diagonal = np.einsum("ii->i", hessian)
        diagonal += self.damping * diagonal.mean()
        factor = inverse_factor(hessian[np.ix_(order, order)])
        early = self.order == "activation" or scheme.block_size is None
        q, scale, minimum = _rounded(in_blocks(rows, scheme), scheme, order, factor, early)
        for _ in range(self.sweeps):
            q, scale, minimum = refined(rows, q, scale, minimum, scheme, hessian)
        return blocks_of(q, scale, minimum, scheme)


def shrunk(hessian: np.ndarray, count: int) -> np.ndarray:
    """Second moments of K numbers with smaller off-diagonals, times `n / (n + K)`: those of few vectors are mostly noise.

    Args:
        hessian: float64 `(K, K)`.
        count: int. n, the number of vectors.

    Example:

    >>> shrunk(np.array([[4.0, 2.0], [2.0, 1.0]]), 6).tolist()
    [[4.0, 1.5], [1.5, 1.0]]
    """
    found = hessian * (count / (count + len(hessian)))
    np.einsum("ii->i", found)[:] = np.diagonal(hessian)
    return found


def column_order(squares: np.ndarray, size: int, order: str | None) -> np.ndarray:
    """The order of the columns.

    Args:
        squares: float `(K,)`: mean squares of the activations.
        size: int. Columns of a block.
        order: one of `ORDERS`.

    Example:

    >>> squares = np.array([1.0, 3.0, 2.0, 9.0])
    >>> [column_order(squares, 2, order).tolist() for order in ORDERS]
    [[3, 1, 2, 0], [3, 2, 1, 0], [0, 1, 2, 3]]
    """
    if order == "activation":
        return np.argsort(-squares, kind="stable")
    if order is None:
        return np.arange(len(squares))
    blocks = squares.reshape(-1, size)
    outer = np.argsort(-blocks.sum(axis=1), kind="stable")
    inner = np.argsort(-blocks, axis=1, kind="stable")
    return (outer[:, None] * size + inner[outer]).reshape(-1)


def inverse_factor(hessian: np.ndarray) -> np.ndarray:
    """The upper triangular U with `H⁻¹ = Uᵀ U`, float64 `(K, K)`, without the inverse itself.

    Example:

    >>> hessian = np.array([[4.0, 1.0], [1.0, 2.0]])
    >>> upper = inverse_factor(hessian)
    >>> np.allclose(upper.T @ upper, np.linalg.inv(hessian)), upper[1, 0].item()
    (True, 0.0)
    """
    # H = R Rᵀ with an upper R, from the lower factor of the reversed matrix; U is its inverse.
    upper = np.linalg.cholesky(hessian[::-1, ::-1])[::-1, ::-1]
    return np.triu(np.linalg.inv(upper))


def _rounded(blocked, scheme, order, factor, early):
    """The integers `(N, blocks, size)` with scales and minima."""
    count, blocks, size = blocked.shape
    weight = np.empty(blocks * size, "float32")
    weight[order] = 1 / np.square(np.diagonal(factor))
    weight = (weight / weight.mean()).reshape(1, blocks, size)
    scale = np.ones((count, blocks), "float32")
    minimum = np.zeros((count, blocks), "float32") if scheme.has_minimum else None
    if early:
        scale, minimum = best_scales(blocked, scheme, weight)
    # Columns are rows here, in their order: an update is then one of whole lines of memory.
    columns = np.ascontiguousarray(blocked.reshape(count, -1).T[order], "float32")
    q, factor = np.empty_like(columns), factor.astype("float32")
    chunk = _COLUMNS if early else size
    for start in range(0, len(columns), chunk):
        stop = min(start + chunk, len(columns))
        if not early:
            index = order[start] // size
            block = np.empty((count, 1, size), "float32")
            block[:, 0, order[start:stop] % size] = columns[start:stop].T
            found = best_scales(block, scheme, weight[:, index : index + 1])
            scale[:, index] = found[0][:, 0]
            if minimum is not None and found[1] is not None:
                minimum[:, index] = found[1][:, 0]
        errors = _chunk(
            columns[start:stop],
            q[start:stop],
            order[start:stop] // size,
            scale,
            minimum,
            scheme,
            factor[start:stop, start:stop],
        )
        columns[stop:] -= factor[start:stop, stop:].T @ errors
    integers = np.empty_like(q)
    integers[order] = q
    return integers.T.reshape(blocked.shape), scale, minimum


def _chunk(columns, q, index, scale, minimum, scheme, factor):
    """Rounds some columns `(n, N)` into q; returns their errors divided by the diagonal of the factor."""
    errors = np.empty_like(columns)
    for j, block in enumerate(index):
        low = 0 if minimum is None else minimum[:, block]
        q[j] = np.clip(np.round((columns[j] - low) / scale[:, block]), scheme.lowest, scheme.highest)
        errors[j] = (columns[j] - (q[j] * scale[:, block] + low)) / factor[j, j]
        columns[j + 1 :] -= factor[j, j + 1 :, None] * errors[j]
    return errors
