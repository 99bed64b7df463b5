"""Scales that cut off what costs least."""

from __future__ import annotations

import numpy as np

from keras_transformer.quantization.blocks import Blocks
from keras_transformer.quantization.methods.method import Method
from keras_transformer.quantization.observation.statistics import Statistics
from keras_transformer.quantization.rounding import round_rows
from keras_transformer.quantization.scheme import WeightScheme


class Clipping(Method):
    """Rounds to the nearest integers, by scales of the least squared error weighted by the mean squares of the activations.

    So a scale may cut off a large weight whose activation is small.

    Example:

    >>> from keras_transformer.quantization import WeightScheme
    >>> statistics = Statistics(32)
    >>> statistics.add(np.eye(32)[1:])  # The first input is always 0.
    >>> rows = np.linspace(1.0, 0.0, 32)[None] ** 3
    >>> both = (method.round(rows, WeightScheme(), statistics) for method in (Clipping(), Method()))
    >>> clipping, nearest = (statistics.error(blocks.values - rows) for blocks in both)
    >>> clipping < nearest
    True

    Reference: Sakr et al., Optimal Clipping and Magnitude-aware Differentiation, arXiv 2206.06501 (OCTAV: scales of the
    least squared error). Deviations: a search with a least-squares fit instead of Newton's iteration; the weights of the
    errors.
    """

    def round(self, rows: np.ndarray, scheme: WeightScheme, statistics: Statistics | None = None) -> Blocks:
        return round_rows(rows, scheme, None if statistics is None else importance(statistics))


def importance(statistics: Statistics) -> np.ndarray:
    """The mean squares of activations, float64 `(K,)`; at least a thousandth of their mean, so that no weight is free."""
    squares = statistics.mean_square
    return np.maximum(squares, 1e-3 * squares.mean()) if squares.any() else np.ones_like(squares)
