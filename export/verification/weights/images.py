"""Whether a stored array is an image of a variable: its numbers, with axes merged, split or transposed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from keras_transformer.export.data.weights import StoredWeight

SAMPLES = 64
_MOST_AXES = 4
# Of the bound of a constant that a converter computed, as a share of the number.
_ROUNDING = 1e-6


def is_image(stored: StoredWeight, array: np.ndarray) -> bool:
    """Whether a stored array has the numbers of a variable.

    Args:
        stored: `StoredWeight`.
        array: values of the variable.

    Returns:
        True if all numbers are equal bit for bit, or within `stored.bound`, under an order of the axes.

    Example:

    >>> kernel = np.arange(6, dtype="float32").reshape(2, 3)
    >>> is_image(StoredWeight("kernel", kernel.T), kernel)
    True
    """
    return is_alike(stored, array) and any(_is_equal(stored, each) for each in transposed(array))


def is_origin(stored: StoredWeight, array: np.ndarray) -> bool:
    """Whether a stored array has the numbers of the variable that it is named after; with its name and shape, in place."""
    if stored.is_named_exactly and stored.values.shape == array.shape:
        return stored.values.dtype == array.dtype and _is_equal(stored, array)
    return is_image(stored, array)


def is_alike(stored: StoredWeight, array: np.ndarray) -> bool:
    """Whether a stored array has the size and the dtype of a variable."""
    return stored.values.size == array.size and stored.values.dtype == array.dtype


def transposed(array: np.ndarray) -> Iterator[np.ndarray]:
    """Yields the array under each order of its axes; of many axes, only those that exchange two groups."""
    squeezed = array.reshape([size for size in array.shape if size != 1])
    yield squeezed
    axes = range(squeezed.ndim)
    if squeezed.ndim <= _MOST_AXES:
        orders = list(itertools.permutations(axes))[1:]
    else:
        orders = [(*axes[split:], *axes[:split]) for split in axes[1:]]
        orders += [
            (*axes[:first], *axes[second:], *axes[first:second]) for first, second in itertools.combinations(axes, 2)
        ]
    for order in orders:
        yield squeezed.transpose(order)


def positions_in(array: np.ndarray, count: int = SAMPLES) -> np.ndarray:
    """Some positions of the flat array, evenly spaced from the first to the last."""
    return np.linspace(0, array.size - 1, min(count, array.size)).astype(int)


def numbers_at(array: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Numbers at positions of the flat array, which may be a view."""
    array = np.atleast_1d(array)
    return array[np.unravel_index(positions, array.shape)]


def equal(stored: StoredWeight, array: np.ndarray) -> np.ndarray:
    """Which numbers are those of an array, of any shape, in the order of their flat positions."""
    return _equal(stored.values, array.reshape(stored.values.shape), stored.bound)


def equal_samples(stored: StoredWeight, array: np.ndarray, count: int = SAMPLES) -> np.ndarray:
    """Which of some numbers are equal."""
    positions = positions_in(array, count)
    bound = None if stored.bound is None else numbers_at(np.broadcast_to(stored.bound, stored.values.shape), positions)
    return _equal(numbers_at(stored.values, positions), numbers_at(array, positions), bound)


def _is_equal(stored: StoredWeight, array: np.ndarray) -> bool:
    return bool(equal_samples(stored, array).all() and equal(stored, array).all())


def _equal(values: np.ndarray, array: np.ndarray, bound: np.ndarray | np.floating | None) -> np.ndarray:
    if bound is None:
        return bits(values) == bits(array)
    return np.asarray(np.abs(values - array) <= bound + _ROUNDING * np.abs(array))


def bits(array: np.ndarray) -> np.ndarray:
    """Floats as integers of the same bits."""
    if array.dtype.kind != "f":
        return array
    return np.ascontiguousarray(array).view(f"uint{8 * array.itemsize}")
