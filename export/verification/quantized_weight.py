"""One weight as a quantized file stores it, dequantized, and its comparison with the float weight."""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

# Rounding of scales, divisions and products in float32, as a share of a step, and of the number itself.
_SLACK, _ROUNDING = 2e-3, 1e-6
# The share of a step that float32 moves a sum of a code and an offset by, where codes are kept and not rounded.
_KEPT = 2e-5
# A lattice of few codes may leave out the largest numbers of a block: by so many steps at most.
_CLIPPED = 4.0
# Numbers that are compared at a time: each takes several times its memory.
_MOST = 2**22


@dataclasses.dataclass
class Dequantized:
    """Numbers of a quantized file.

    Args:
        values: float or integer array, as the runtime computes it from the stored numbers.
        step: for codes, the distance between the values of adjacent codes, which broadcasts to `values`; None for
            numbers that must be equal to the float weight bit for bit.
        is_half: bool. Whether the numbers are stored in float16.
        ends: int8 array: -1 where a code is the lowest of its kind, 1 where it is the highest, otherwise 0; None for
            lattices that reach the largest number of each group.
        highest: int. The highest code, for codes of few bits that are not numbers yet.

    Example:

    >>> Dequantized(np.array([[0.5, 1.0]]), np.array([[0.5]])).map(np.transpose).values.shape
    (2, 1)
    """

    values: np.ndarray
    step: Any = None
    is_half: bool = False
    ends: np.ndarray | None = None
    highest: int | None = None

    def map(self, change: Callable[[np.ndarray], np.ndarray]) -> Dequantized:
        """The same numbers under another layout."""
        step = self.step
        if step is not None and np.size(step) > 1:
            step = change(np.broadcast_to(step, self.values.shape))
        ends = None if self.ends is None else change(self.ends)
        return dataclasses.replace(self, values=change(self.values), step=step, ends=ends)

    def scaled(self, scale: np.ndarray | np.float32) -> Dequantized:
        """The numbers times scales."""
        if self.step is None:
            return dataclasses.replace(self, values=self.values * scale)
        return dataclasses.replace(self, values=self.values * scale, step=self.step * np.abs(scale))

    def shifted(self, offset: np.ndarray | np.float32) -> Dequantized:
        """The numbers plus offsets, which do not change the step."""
        return dataclasses.replace(self, values=self.values + offset)

    def added_halves(self) -> Dequantized:
        """Two digits `(N, 2 * K)` as numbers `(N, K)`; the second ones have the smaller step.

        Example:

        >>> Dequantized(np.array([[16.0, 3.0]]), np.array([[16.0, 1.0]])).added_halves().values.tolist()
        [[19.0]]
        """
        left, right = np.split(self.values, 2, axis=-1)
        step = None if self.step is None else np.split(np.broadcast_to(self.step, self.values.shape), 2, axis=-1)[1]
        return Dequantized(left + right, step, self.is_half)


@dataclasses.dataclass
class WeightPair:
    """A weight of a float file, and what a quantized file has in its place.

    Args:
        name: path of the variable, or the name in the float file.
        expected: float array.
        found: `Dequantized`; None where it cannot be told what the quantized file computes.

    Example:

    >>> WeightPair("kernel", np.ones(3, "float32"), None).expected.size
    3
    """

    name: str
    expected: np.ndarray
    found: Dequantized | None


def codes(numbers: np.ndarray, highest: int | None = None) -> Dequantized:
    """Codes as floats with a step of 1; those of few bits, from 0 to `highest`, may be clipped at both ends.

    Example:

    >>> codes(np.array([0, 7, 15], "uint8"), 15).ends.tolist()
    [-1, 0, 1]
    """
    ends = None
    if highest is not None:
        ends = (numbers == highest).astype("int8") - (numbers == 0).astype("int8")
    return Dequantized(numbers.astype("float32"), np.float32(1), ends=ends)


def worst_fault(
    expected: np.ndarray, found: Dequantized, is_kept: bool = False
) -> tuple[tuple[int, ...], float] | None:
    """Where a quantized weight is further from the float weight than rounding to its steps explains.

    Args:
        expected: float array.
        found: `Dequantized` of the same shape.
        is_kept: bool. Whether its codes are those that the float weight was made of: nothing may be rounded to a step.

    Returns:
        `(index, error)`: the index with the largest error, and that error in steps (in its own unit without steps); None
        where every number is within half a step.

    Example:

    >>> worst_fault(np.array([0.3, 1.0]), Dequantized(np.array([0.5, 2.0]), np.float32(0.5)))
    ((1,), 2.0)
    """
    worst, step = None, max(_MOST // max(math.prod(expected.shape[1:]), 1), 1)
    for start in range(0, len(expected) if expected.ndim else 1, step):
        part = slice(start, start + step) if expected.ndim else ()
        fault = _fault(expected[part], found.map(operator.itemgetter(part)), is_kept)
        if fault is not None and (worst is None or fault[1] > worst[1]):
            index, error = fault
            worst = (start + index[0], *index[1:]) if index else index, error
    return worst


def _fault(expected: np.ndarray, found: Dequantized, is_kept: bool) -> tuple[tuple[int, ...], float] | None:
    if found.step is None:
        wanted = expected.astype("float16").astype("float32") if found.is_half else expected
        wrong = np.asarray(found.values != wanted) & ~(np.isnan(found.values) & np.isnan(wanted))
        if not wrong.any():
            return None
        error = np.where(wrong, np.abs(found.values.astype("float64") - wanted), -1.0)
        return _worst(error)
    error = found.values - expected
    step = np.broadcast_to(np.asarray(found.step, "float32"), error.shape)
    if found.ends is not None and not is_kept:
        # Below the lowest code, the code is too high; above the highest, too low.
        clipped = found.ends * error < 0
        error = np.where(clipped, np.sign(error) * np.maximum(np.abs(error) - _CLIPPED * step, 0), error)
    error = np.abs(error)
    bound = step * np.float32(_KEPT if is_kept else 0.5 + _SLACK) + np.float32(_ROUNDING) * np.abs(expected)
    if (error <= bound).all():  # NaN is not.
        return None
    return _worst(error / step)


def _worst(error: np.ndarray) -> tuple[tuple[int, ...], float]:
    place = int(np.nan_to_num(error, nan=np.inf).argmax())
    index = np.unravel_index(place, error.shape)
    return tuple(int(each) for each in index), float(error[index])
