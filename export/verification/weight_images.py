"""Whether a stored array is an image of a variable: its numbers, with axes merged, split or transposed."""

import dataclasses
import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from keras_transformer.export.data.weights import StoredWeight

_SAMPLES = 64
_MOST_AXES = 4
_ROUNDING, _SIMILAR = 1e-6, 1e-5
# The relative rounding error of bfloat16. Numbers that arrays have in common by chance.
_HALF, _COMMON = 2.0**-8, (-1.0, 0.0, 1.0)
# What share of the numbers an array has in common with a variable that it is made of, and of how many at least.
_MOVED, _MOST, _FEWEST = 0.3, 0.7, 8


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
    if stored.values.size != array.size or stored.values.dtype != array.dtype:
        return False
    return any(_is_equal(stored, each) for each in transposed(array))


def is_origin(stored: StoredWeight, array: np.ndarray) -> bool:
    """Whether a stored array has the numbers of the variable that it is named after; with its name and shape, in place."""
    if stored.is_named_exactly and stored.values.shape == array.shape:
        return stored.values.dtype == array.dtype and _is_equal(stored, array)
    return is_image(stored, array)


def is_rows_of(stored: StoredWeight, array: np.ndarray) -> bool:
    """Whether a stored array is a run of rows of a table: a signature of fixed length needs no more of them."""
    values = stored.values
    if array.ndim < 2 or not 0 < values.size < array.size or values.dtype != array.dtype:
        return False
    for rows in (array.reshape(-1, array.shape[-1]), array.reshape(len(array), -1)):
        width = rows.shape[1]
        if values.size % width or stored.bound is not None:
            continue
        found = values.reshape(-1, width)
        for start in np.flatnonzero((rows[: len(rows) - len(found) + 1] == found[0]).all(axis=1)):
            if np.array_equal(_bits(rows[start : start + len(found)]), _bits(found)):
                return True
    return False


def repeated_row(stored: StoredWeight) -> StoredWeight | None:
    """The row that an array repeats among rows of zeros, as a converter writes the choice between a vector and zeros.

    Example:

    >>> table = StoredWeight("table", np.array([[3.0, 4.0], [0.0, 0.0], [3.0, 4.0]]))
    >>> repeated_row(table).values.tolist()
    [3.0, 4.0]
    """
    if stored.values.ndim < 2 or not stored.values.size:
        return None
    rows = stored.values.reshape(-1, stored.values.shape[-1])
    others = rows[rows.any(axis=1)]
    if len(rows) == 1 or not len(others) or not np.array_equal(others, np.broadcast_to(others[0], others.shape)):
        return None
    return dataclasses.replace(stored, values=others[0])


def factors_of(stored: StoredWeight, array: np.ndarray) -> set[float]:
    """By what a stored array may be a multiple of a variable, from samples of both.

    Example:

    >>> factors_of(StoredWeight("half", np.ones(3, "float32")), np.full(3, 2, "float32"))
    {0.5}
    """
    if stored.values.size != array.size or stored.values.dtype != array.dtype or not array.size:
        return set()
    positions = np.linspace(0, array.size - 1, min(_SAMPLES, array.size)).astype(int)
    values, found = _at(stored.values, positions).astype("float64"), set()
    for each in transposed(array):
        sample = _at(each, positions).astype("float64")
        peak = np.abs(sample).argmax()
        factor = values[peak] / sample[peak] if sample[peak] else 0.0
        if factor and np.allclose(values, factor * sample, rtol=_SIMILAR, atol=0):
            found.add(float(factor))
    return found


def channel_factors_of(stored: StoredWeight, array: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """By what the channels of a stored array may be multiples of those of a variable.

    Yields:
        `(matrix, factors)`: the variable as a matrix `(K, N)` or `(N, K)` in the order of the stored array, and the
        factors, `(N,)` or `(N, 1)`, which broadcast to it.
    """
    if stored.values.size != array.size or stored.values.dtype.kind != "f" or array.ndim < 2:
        return
    values = stored.values.reshape(-1)
    for each in transposed(array):
        if each.ndim < 2:
            continue
        for matrix in (each.reshape(-1, each.shape[-1]), each.reshape(len(each), -1)):
            found = values.reshape(matrix.shape)
            for axis in (0, 1):
                peaks = np.abs(matrix).argmax(axis=axis, keepdims=True)
                divisor = np.take_along_axis(matrix, peaks, axis)
                factors = np.take_along_axis(found, peaks, axis) / np.where(divisor, divisor, 1)
                if np.allclose(found, factors * matrix, rtol=_SIMILAR, atol=0):
                    yield matrix, factors


def difference(stored: StoredWeight, array: np.ndarray) -> tuple[float, tuple[int, ...]]:
    """How much of a variable a stored array contains.

    Returns:
        `(share, index)`: the share of equal numbers under the best order of the axes, and the first index of the
        variable where they differ.
    """
    if stored.values.size != array.size or stored.values.dtype != array.dtype:
        return 0.0, (0,) * array.ndim
    orders = list(transposed(array))
    best = max(range(len(orders)), key=lambda number: _sampled(stored, orders[number], 16 * _SAMPLES).mean())
    equal = _equal(stored.values, orders[best].reshape(stored.values.shape), stored.bound)
    wrong = np.flatnonzero(~equal)
    indices = np.unravel_index(wrong[0] if wrong.size else 0, orders[best].shape)
    numbers = np.broadcast_to(np.arange(1), array.shape) if best == 0 else np.arange(array.size).reshape(array.shape)
    place = wrong[0] if best == 0 and wrong.size else list(transposed(numbers))[best][indices]
    return float(equal.mean()), tuple(int(each) for each in np.unravel_index(place, array.shape))


def is_near(stored: StoredWeight, array: np.ndarray) -> bool:
    """Whether an array is a variable or a multiple of lower precision, has its numbers at other places, or most of them.

    Example:

    >>> kernel = np.linspace(-1, 1, 64, dtype="float32")
    >>> is_near(StoredWeight("half", kernel.astype("float16").astype("float32")), kernel)
    True
    >>> is_near(StoredWeight("moved", np.roll(kernel, 1)), kernel), is_near(StoredWeight("other", kernel**2), kernel)
    (True, False)
    """
    if stored.values.size != array.size or stored.values.dtype != array.dtype:
        return False
    positions = np.linspace(0, array.size - 1, min(16 * _SAMPLES, array.size)).astype(int)
    sample = _at(stored.values, positions)
    special = sample[~np.isin(sample, _COMMON)]
    if special.size and np.isin(special, array).mean() > _MOVED:
        return True
    values = stored.values.reshape(-1)
    for each in transposed(array):
        flat, part = each.reshape(-1), _at(each, positions)
        ratio = _ratio(sample, part)
        if _is_multiple_in_part(sample, part) or _is_less_precise(values, flat, 1.0):
            return True
        if array.size >= _FEWEST and _is_less_precise(sample, part, ratio) and _is_less_precise(values, flat, ratio):
            return True
    return False


def _ratio(values: np.ndarray, array: np.ndarray) -> float:
    """The median of the ratios to an array."""
    is_number = array != 0
    return float(np.median(values[is_number] / array[is_number])) if is_number.any() else 0.0


def _is_less_precise(values: np.ndarray, array: np.ndarray, factor: float) -> bool:
    """Whether an array is a multiple of another one, up to the rounding of half precision."""
    return bool(factor and (np.abs(values - factor * array) <= _HALF * np.abs(factor * array)).all())


def _is_multiple_in_part(values: np.ndarray, array: np.ndarray) -> bool:
    """Whether most numbers, but not all, are the same multiple of those of an array."""
    is_number = array != 0
    if is_number.sum() < _FEWEST:
        return False
    ratios = values[is_number].astype("float64") / array[is_number]
    middle = np.median(ratios)
    share = (np.abs(ratios - middle) <= _SIMILAR * np.abs(middle)).mean()
    return bool(middle and _MOST <= share < 1)


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


def _is_equal(stored: StoredWeight, array: np.ndarray) -> bool:
    if not _sampled(stored, array, _SAMPLES).all():
        return False
    return bool(_equal(stored.values, array.reshape(stored.values.shape), stored.bound).all())


def _sampled(stored: StoredWeight, array: np.ndarray, count: int) -> np.ndarray:
    """Which of some numbers are equal."""
    positions = np.linspace(0, array.size - 1, min(count, array.size)).astype(int)
    bound = None if stored.bound is None else _at(np.broadcast_to(stored.bound, stored.values.shape), positions)
    return _equal(_at(stored.values, positions), _at(array, positions), bound)


def _at(array: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Numbers at positions of the flat array, which may be a view."""
    array = np.atleast_1d(array)
    return array[np.unravel_index(positions, array.shape)]


def _equal(values: np.ndarray, array: np.ndarray, bound: Any) -> np.ndarray:
    if bound is None:
        return _bits(values) == _bits(array)
    return np.abs(values - array) <= bound + _ROUNDING * np.abs(array)


def _bits(array: np.ndarray) -> np.ndarray:
    """Floats as integers of the same bits."""
    if array.dtype.kind != "f":
        return array
    return np.ascontiguousarray(array).view(f"uint{8 * array.itemsize}")


def size_of(shape: Any) -> int:
    """Number of elements of a shape."""
    return math.prod(int(size) for size in shape)
