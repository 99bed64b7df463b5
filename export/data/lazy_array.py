"""An array that is computed, or mapped from a file, each time it is read."""

from __future__ import annotations

import math
import pathlib
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import DTypeLike


class LazyArray:
    """An array without memory of its own: `np.asarray` reads it.

    Args:
        read: function that returns the array.
        shape: its shape.
        dtype: its dtype.
        key: what is equal for arrays of equal values, such as a place in a file; None for an array that is like no other.

    Example:

    >>> array = LazyArray(lambda: np.arange(6.0).reshape(2, 3), (2, 3), "float64")
    >>> array.map(np.transpose).shape, float(np.asarray(array).sum())
    ((3, 2), 15.0)
    """

    def __init__(
        self, read: Callable[[], np.ndarray], shape: tuple[int, ...], dtype: DTypeLike, key: Hashable = None
    ) -> None:
        self._read, self.shape, self.dtype = read, tuple(map(int, shape)), np.dtype(dtype)
        self.key = object() if key is None else key

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        array = self._read()
        return array if dtype is None else array.astype(dtype, copy=False)

    def map(self, change: Callable[[np.ndarray], np.ndarray], key: Hashable = None) -> LazyArray:
        """The array under another layout.

        Args:
            change: function that returns a view or a copy of an array, with as many elements.
            key: what is equal for equal changes, or None.
        """
        # An array that repeats one element has the shape without the memory.
        shape = change(np.broadcast_to(np.zeros((), "int8"), self.shape)).shape
        return LazyArray(lambda: change(self._read()), shape, self.dtype, None if key is None else (self.key, key))


AnyArray = np.ndarray | LazyArray


def mapped(path: pathlib.Path, offset: int, shape: tuple[int, ...], dtype: DTypeLike) -> LazyArray:
    """An array in a file, of which nothing stays in memory between two reads."""
    key = str(path), offset, tuple(shape), np.dtype(dtype).str
    return LazyArray(lambda: np.asarray(np.memmap(path, dtype, "r", offset, tuple(shape))), shape, dtype, key)


class LazyArrays(Mapping[str, np.ndarray]):
    """Arrays by name, each read when it is looked up.

    Args:
        arrays: dict of name to `LazyArray` or numpy array.

    Example:

    >>> LazyArrays({"ones": LazyArray(lambda: np.ones(3), (3,), "float64")})["ones"].tolist()
    [1.0, 1.0, 1.0]
    """

    def __init__(self, arrays: Mapping[str, AnyArray]) -> None:
        self._arrays = dict(arrays)

    def __getitem__(self, name: str) -> np.ndarray:
        return np.asarray(self._arrays[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)
