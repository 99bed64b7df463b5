"""The weights in written files, as the formats hand them to what compares and shows them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import numpy as np


@dataclasses.dataclass
class StoredWeight:
    """An array of numbers in a written float file.

    Args:
        name: name in the file, or another one that finds it there.
        values: numpy array, which may be mapped from the file.
        origin: name of the variable that it was made of, if the format keeps names; otherwise None.
        is_named_exactly: bool. Whether `origin` is the name in the file, and not only a part of it.
        bound: the largest rounding error of each element (broadcastable to `values`) of a constant that the converter
            computed; None for a weight that must be equal bit for bit.
        readers: names of the operations that read it, if the format keeps names.

    Example:

    >>> StoredWeight("dense/kernel", np.ones((2, 3), "float32"), origin="dense/kernel").values.size
    6
    """

    name: str
    values: np.ndarray
    origin: str | None = None
    is_named_exactly: bool = False
    bound: np.ndarray | np.floating | None = None
    readers: frozenset[str] = frozenset()


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
    step: np.ndarray | np.floating | None = None
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


class WeightBytes(NamedTuple):
    """A constant of a file.

    Args:
        name: its name in the file, or that of the operation that reads it where the file names constants by numbers.
        dtype: such as `"float32"` or `"int4"`.
        shape: sizes.
        size: bytes in the file.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    size: int
