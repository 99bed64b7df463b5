"""Tensors of a file that are read part by part, through any layout."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from keras_transformer.utils.types import DType, Tensor

Bounds = tuple[tuple[int, int], ...]


class LazyTensor(np.lib.mixins.NDArrayOperatorsMixin):
    """An array that is not in memory, of which `part` computes any part.

    Transpositions, reshapes, slices, splits, `np.stack` and `np.concatenate` give lazy tensors. Every other use of it as a
    NumPy array reads all of it, so that a layout that is written for arrays is correct for lazy tensors.

    Args:
        shape: tuple of ints.
        read: function of bounds, a tuple of `(start, stop)` for each axis, to an array.

    Example:

    >>> table = np.arange(12).reshape(3, 4)
    >>> lazy = LazyTensor((3, 4), lambda bounds: table[tuple(slice(*pair) for pair in bounds)])
    >>> lazy.T.reshape(2, 2, 3).part(((1, 2), (0, 1), (0, 3))).tolist()
    [[[2, 6, 10]]]
    """

    def __init__(self, shape: Sequence[int], read: Callable[[Bounds], np.ndarray]) -> None:
        self.shape = tuple(shape)
        self.part = read

    @property
    def ndim(self) -> int:
        """int: the number of axes."""
        return len(self.shape)

    @property
    def T(self) -> LazyTensor:
        """The tensor with its axes reversed."""
        return self.transpose()

    def transpose(self, *axes: Any) -> LazyTensor:
        """Returns the tensor with permuted axes, as `np.ndarray.transpose`."""
        order = [int(axis) for axis in (axes[0] if len(axes) == 1 else axes)] or list(range(self.ndim))[::-1]

        def read(bounds: Bounds) -> np.ndarray:
            return self.part(tuple(bounds[order.index(axis)] for axis in range(self.ndim))).transpose(order)

        return LazyTensor([self.shape[axis] for axis in order], read)

    def reshape(self, *shape: Any) -> LazyTensor:
        """Returns the tensor with another shape of as many elements, as `np.ndarray.reshape`."""
        wanted = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        known = math.prod(size for size in wanted if size != -1)
        sizes = tuple(math.prod(self.shape) // known if size == -1 else int(size) for size in wanted)
        return LazyTensor(sizes, lambda bounds: _reshaped_part(self, sizes, bounds))

    def __getitem__(self, index: Any) -> Any:
        if not isinstance(index, slice) or index.step not in (None, 1):
            return np.asarray(self)[index]
        start, stop, _ = index.indices(self.shape[0])
        return _sliced(self, 0, start, max(start, stop))

    def __iter__(self) -> Iterator[np.ndarray]:
        return iter(np.asarray(self))

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, dtype: DType = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.part(tuple((0, size) for size in self.shape)), dtype)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(np.asarray(self), name)

    def __array_ufunc__(self, function: np.ufunc, method: str, *inputs: object, **options: object) -> Any:
        return getattr(function, method)(*map(_array, inputs), **options)

    def __array_function__(
        self,
        function: Callable[..., object],
        types: Collection[type],
        args: Sequence[object],
        kwargs: Mapping[str, object],
    ) -> Any:
        if function in _LAZY:
            return _LAZY[function](*args, **kwargs)
        return function(*map(_array, args), **{name: _array(value) for name, value in kwargs.items()})


def _array(value: object) -> object:
    """Returns an argument with arrays in place of lazy tensors."""
    if isinstance(value, (list, tuple)):
        return type(value)(map(_array, value))
    return np.asarray(value) if isinstance(value, LazyTensor) else value


def _sliced(tensor: LazyTensor, axis: int, start: int, stop: int) -> LazyTensor:
    def read(bounds: Bounds) -> np.ndarray:
        low, high = bounds[axis]
        return tensor.part((*bounds[:axis], (low + start, high + start), *bounds[axis + 1 :]))

    return LazyTensor([*tensor.shape[:axis], stop - start, *tensor.shape[axis + 1 :]], read)


def _split(tensor: LazyTensor, places: int | Sequence[int], axis: int = 0) -> list[LazyTensor]:
    axis, length = axis % tensor.ndim, tensor.shape[axis]
    if isinstance(places, int):
        places = [length // places * index for index in range(1, places)]
    ends = [0, *(int(place) for place in places), length]
    return [_sliced(tensor, axis, *pair) for pair in zip(ends, ends[1:], strict=False)]


def _concatenate(tensors: Sequence[Tensor | LazyTensor], axis: int = 0) -> LazyTensor:
    parts = [as_lazy(tensor) for tensor in tensors]
    axis %= parts[0].ndim
    ends = [0, *np.cumsum([part.shape[axis] for part in parts]).tolist()]

    def read(bounds: Bounds) -> np.ndarray:
        found, (low, high) = [], bounds[axis]
        for part, start, end in zip(parts, ends, ends[1:], strict=False):
            inside = max(low, start) - start, min(high, end) - start
            if inside[0] < inside[1]:
                found.append(part.part((*bounds[:axis], inside, *bounds[axis + 1 :])))
        return np.concatenate(found, axis)

    shape = parts[0].shape
    return LazyTensor([*shape[:axis], ends[-1], *shape[axis + 1 :]], read)


def _stack(tensors: Sequence[Tensor | LazyTensor], axis: int = 0) -> LazyTensor:
    parts = [as_lazy(tensor) for tensor in tensors]
    axis %= parts[0].ndim + 1
    return _concatenate([part.reshape((*part.shape[:axis], 1, *part.shape[axis:])) for part in parts], axis)


def as_lazy(tensor: Tensor | LazyTensor) -> LazyTensor:
    """Returns an array, or a lazy tensor, as a lazy tensor."""
    if isinstance(tensor, LazyTensor):
        return tensor
    return LazyTensor(tensor.shape, lambda bounds: tensor[tuple(slice(*pair) for pair in bounds)])


_LAZY: dict[Callable[..., object], Callable[..., object]] = {
    np.split: _split,
    np.concatenate: _concatenate,
    np.stack: _stack,
}


def _reshaped_part(tensor: LazyTensor, shape: tuple[int, ...], bounds: Bounds) -> np.ndarray:
    """Returns a part of a reshaped tensor from the smallest part of the tensor that has all of it, with whole rows.

    The axes of both shapes fall into groups of as many elements, such as one axis that becomes two. In each group, the part
    is extended to a range of consecutive elements.
    """
    groups = _groups(tensor.shape, shape)
    boxes, needed, flat, local = [], [], [], []
    for old, new in groups:
        sizes = shape[new]
        box = _consecutive(sizes, bounds[new])
        low, high = _range(sizes, box)
        cover = _cover(tensor.shape[old], low, high)
        start, stop = _range(tensor.shape[old], cover)
        needed += cover
        flat.append((stop - start, slice(low - start, high - start)))
        boxes += [end - begin for begin, end in box]
        local += [slice(a - begin, b - begin) for (a, b), (begin, _) in zip(bounds[new], box, strict=True)]
    values = tensor.part(tuple(needed)).reshape([size for size, _ in flat])
    return values[tuple(each for _, each in flat)].reshape(boxes)[tuple(local)]


def _groups(old: tuple[int, ...], new: tuple[int, ...]) -> list[tuple[slice, slice]]:
    """Returns the slices of axes of both shapes that have as many elements, as short as possible."""
    groups, i, j = [], 0, 0
    while i < len(old) or j < len(new):
        start = i, j
        i, j = i + (i < len(old)), j + (j < len(new))
        left, right = math.prod(old[start[0] : i]), math.prod(new[start[1] : j])
        while left != right:
            if left < right:
                left, i = left * old[i], i + 1
            else:
                right, j = right * new[j], j + 1
        groups.append((slice(start[0], i), slice(start[1], j)))
    return groups


def _consecutive(sizes: tuple[int, ...], bounds: Bounds) -> list[tuple[int, int]]:
    """Returns the bounds of the smallest range of consecutive elements that has those of `bounds`."""
    box: list[tuple[int, int]] = []
    for size, pair in zip(sizes, bounds, strict=True):
        is_first = all(stop - start == 1 for start, stop in box)
        box.append(pair if is_first else (0, size))
    return box


def _cover(sizes: tuple[int, ...], low: int, high: int) -> list[tuple[int, int]]:
    """Returns the bounds of consecutive elements, in whole rows, among which are those from `low` to `high`."""
    box: list[tuple[int, int]] = []
    for index in range(len(sizes)):
        tail = math.prod(sizes[index + 1 :])
        first, last = low // tail, (high - 1) // tail
        if first != last:
            return [*box, (first, last + 1), *((0, each) for each in sizes[index + 1 :])]
        box.append((first, first + 1))
        low, high = low - first * tail, high - first * tail
    return box


def _range(sizes: tuple[int, ...], box: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Returns the first index, and the one behind the last, of consecutive elements."""
    low = high = 0
    for size, (start, stop) in zip(sizes, box, strict=True):
        low, high = low * size + start, high * size + stop - 1
    return low, high + 1
