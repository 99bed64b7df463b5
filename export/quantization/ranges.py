"""The ranges of activations that become integers, from histograms of their values on calibration data."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from keras_transformer.export.errors import WeightError

# Larger numbers are no activations, but additive masks: beside them, no step of 8 bits is left for the others.
LARGEST = 6e4
# Half of them are for negative numbers.
_BINS = 8192
# Share of the values outside the range of "percentile", on each side.
_CLIPPED = 1e-5
_SHARES = np.linspace(0.05, 1.0, 96)
# The probability of a value in a bin where the integers tell of none.
_NEVER = 1e-9
# What rounding makes of means and extremes of the same numbers, as a share of their size.
SAME = 1e-4
# By what share the scale of a file may differ from that of the range.
_CLOSE = 1e-4


class RangeObserver:
    """A histogram of the values of one tensor, whose bins grow with the values.

    Example:

    >>> observer = RangeObserver()
    >>> observer.add(np.array([-1.0, 0.5])), observer.add(np.array([3.0]))
    (None, None)
    >>> observer.range("minmax")
    (-1.0, 3.0)
    """

    def __init__(self) -> None:
        self._counts = np.zeros(_BINS, "int64")
        self._limit = 0.0
        self._least, self._largest = 0.0, 0.0
        self._sums, self._batches = np.zeros(2), 0
        self._moments = np.zeros(3)

    def add(self, array: np.ndarray) -> None:
        """Adds the values of a batch; infinite ones do not count."""
        values = np.asarray(array, "float64").reshape(-1)
        values = values[np.isfinite(values)]
        if values.size == 0:
            return
        self._moments += values.size, values.sum(), np.square(values).sum()
        ends = min(0.0, float(values.min())), max(0.0, float(values.max()))
        self._sums, self._batches = self._sums + ends, self._batches + 1
        self._least, self._largest = min(self._least, ends[0]), max(self._largest, ends[1])
        self._grow(max(-self._least, self._largest))
        index = ((values / self._limit + 1) * (_BINS // 2)).astype("int64")
        self._counts += np.bincount(np.clip(index, 0, _BINS - 1), minlength=_BINS)

    def _grow(self, magnitude: float) -> None:
        """Doubles the width of the bins until they reach a magnitude."""
        if self._limit == 0.0:
            self._limit = magnitude or 1.0
        while self._limit < magnitude:
            pairs, quarter = self._counts.reshape(-1, 2).sum(axis=1), _BINS // 4
            self._counts = np.zeros_like(self._counts)
            self._counts[quarter:-quarter] = pairs
            self._limit *= 2

    def factor_of(self, other: RangeObserver) -> float | None:
        """The positive factor by which the numbers that another one has seen are these, in any order and up to rounding.

        Example:

        >>> ours, theirs = RangeObserver(), RangeObserver()
        >>> ours.add(np.array([1.0, -2.0, 3.0])), theirs.add(np.array([-4.0, 6.0, 2.0]))
        (None, None)
        >>> ours.factor_of(theirs)
        0.5
        """
        count, size, shape = self._shape()
        others, others_size, others_shape = other._shape()
        is_same = count == others and size > 0 and others_size > 0 and bool((abs(shape - others_shape) < SAME).all())
        return size / others_size if is_same else None

    def _shape(self) -> tuple[int, float, np.ndarray]:
        """How many numbers there are, the root of their mean square, and their mean and extremes as shares of it."""
        count, total, squares = self._moments
        size = float(np.sqrt(squares / max(count, 1)))
        return int(count), size, np.array([total / max(count, 1), self._least, self._largest]) / (size or 1.0)

    def range(self, method: str, bits: int = 8) -> tuple[float, float]:
        """The least and the largest number that integers have to represent; 0 is among them.

        Args:
            method: one of `RANGES`.
            bits: of the integers.
        """
        if method == _AVERAGE:
            least, largest = self._sums / max(self._batches, 1)
            return float(least), float(largest)
        centers = (np.arange(_BINS) + 0.5) * (2 * self._limit / _BINS) - self._limit
        return _BY_VALUES[method](centers, self._counts, (self._least, self._largest), 2**bits - 1)


def _by_extremes(centers, counts, extremes, levels):
    return extremes


def _by_percentile(centers, counts, extremes, levels):
    """Few values are outside on each side."""
    shares = np.cumsum(counts) / max(counts.sum(), 1)
    low, high = np.searchsorted(shares, [_CLIPPED, 1 - _CLIPPED])
    least, largest = extremes
    return max(min(centers[low], 0.0), least), min(max(centers[min(high, _BINS - 1)], 0.0), largest)


def _by_squared_error(centers, counts, extremes, levels):
    """The least expected squared error: a twelfth of a squared step inside, the squared distance outside."""
    sums = [counts * centers**power for power in (0, 1, 2)]
    ends = [np.array([end * share for share in _SHARES]) if end else np.zeros(1) for end in extremes]
    below = _outside(centers, [np.cumsum(each) for each in sums], ends[0], before=True)
    above = _outside(centers, [np.cumsum(each[::-1])[::-1] for each in sums], ends[1], before=False)
    steps = (ends[1] - ends[0][:, None]) / levels
    errors = counts.sum() * steps**2 / 12 + below[:, None] + above
    low, high = np.unravel_index(errors.argmin(), errors.shape)
    return float(ends[0][low]), float(ends[1][high])


def _outside(centers, sums, ends, before):
    """The squared distances of the values beyond each end, by sums of the values' powers up to, or from, each bin."""
    at = np.searchsorted(centers, ends) - 1 if before else np.searchsorted(centers, ends, side="right")
    inside = np.clip(at, 0, len(centers) - 1)
    zeroth, first, second = (each[inside] for each in sums)
    distances = second - 2 * ends * first + ends**2 * zeroth
    return np.where(at == inside, np.maximum(distances, 0.0), 0.0)


def _by_entropy(centers, counts, extremes, levels):
    """The least divergence of the values, those outside at the ends, from what the levels inside tell of them."""
    divergences = [_divergence(centers, counts, [end * share for end in extremes], levels) for share in _SHARES]
    share = _SHARES[int(np.argmin(divergences))]
    return float(extremes[0] * share), float(extremes[1] * share)


def _divergence(centers, counts, ends, levels):
    """The Kullback-Leibler divergence of one range."""
    first, after = np.searchsorted(centers, ends[0]), np.searchsorted(centers, ends[1], side="right")
    inside = counts[first:after].astype("float64")
    if not inside.any():
        return np.inf
    whole = inside.copy()
    whole[0] += counts[:first].sum()
    whole[-1] += counts[after:].sum()
    level = np.minimum((np.arange(len(inside)) * levels) // len(inside), levels - 1)
    is_there = inside > 0
    shared = np.bincount(level, inside) / np.maximum(np.bincount(level, is_there), 1)
    told = np.where(is_there, shared[level], 0.0) / inside.sum()
    share = whole / whole.sum()
    counted = share > 0
    return float(np.sum(share[counted] * np.log(share[counted] / np.maximum(told[counted], _NEVER))))


_AVERAGE = "moving_average"
_BY_VALUES: dict[str, Callable[..., tuple[float, float]]] = {
    "minmax": _by_extremes,
    "percentile": _by_percentile,
    "mse": _by_squared_error,
    "entropy": _by_entropy,
}
# The ways to find a range. A moving average is that of the extremes of the batches.
RANGES = (*_BY_VALUES, _AVERAGE)


def check_step(format: str, tensor: str, step: tuple[float, float], steps: np.ndarray) -> None:
    """Checks that a tensor of integers has the scale and the zero point of one of some ranges.

    Args:
        format: name of the format, for the error.
        tensor: name of the tensor.
        step: its scale and zero point.
        steps: float `(N, 2)`, those of the ranges; a zero point may be one beside, by the rounding of its quotient.

    Raises:
        WeightError: names the tensor.
    """
    scale, zero = step
    is_known = np.isclose(steps[:, 0], scale, rtol=_CLOSE, atol=0) & (np.abs(steps[:, 1] - zero) <= 1)
    if not is_known.any():
        raise unknown_step(format, tensor, step)


def unknown_step(format: str, tensor: str, step: tuple[float, float]) -> WeightError:
    """The error of a tensor whose scale and zero point are those of no range."""
    reason = f"has the scale {step[0]:.6g} and the zero point {step[1]:.0f}, which are those of no measured range"
    return WeightError(format, tensor, reason, ())
