"""Statistics of the inputs of a product."""

from __future__ import annotations

import numpy as np


class Statistics:
    """Second moments, mean magnitudes and the largest magnitudes of vectors x.

    Args:
        width: int. K: the numbers of a vector.

    Attributes:
        count: int. How many vectors there were.

    Example:

    >>> statistics = Statistics(2)
    >>> statistics.add(np.array([[1.0, 2.0], [3.0, -4.0]]))
    >>> statistics.hessian.tolist(), statistics.mean_magnitude.tolist(), statistics.largest.tolist()
    ([[5.0, -5.0], [-5.0, 10.0]], [2.0, 3.0], [3.0, 4.0])
    """

    def __init__(self, width: int) -> None:
        self.count = 0
        self.largest = np.zeros(width)
        self._products = np.zeros((width, width))
        self._magnitudes = np.zeros(width)

    def add(self, x: np.ndarray) -> None:
        """Adds vectors, float `(n, K)`."""
        x = np.asarray(x, "float32")
        if len(x):
            self.count += len(x)
            self._products += x.T @ x
            magnitudes = np.abs(x)
            self._magnitudes += magnitudes.sum(axis=0, dtype="float64")
            self.largest = np.maximum(self.largest, magnitudes.max(axis=0))

    def merge(self, other: Statistics) -> None:
        """Adds what others counted."""
        self.count += other.count
        self.largest = np.maximum(self.largest, other.largest)
        self._products += other._products
        self._magnitudes += other._magnitudes

    @property
    def hessian(self) -> np.ndarray:
        """The mean of x xᵀ, float64 `(K, K)`: half the Hessian of the squared error of an output, for each vector."""
        return self._products / max(self.count, 1)

    @property
    def mean_square(self) -> np.ndarray:
        """The mean of x², float64 `(K,)`."""
        return np.diagonal(self._products) / max(self.count, 1)

    @property
    def mean_magnitude(self) -> np.ndarray:
        """The mean of |x|, float64 `(K,)`."""
        return self._magnitudes / max(self.count, 1)

    def error(self, change: np.ndarray) -> float:
        """The mean of |change x|² over the vectors: the squared error of the outputs.

        Args:
            change: float `(N, K)`: what was added to the rows of the weight.
        """
        hessian = self.hessian.astype("float32")
        return float(np.sum((change @ hessian) * change, dtype="float64"))
