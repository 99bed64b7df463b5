"""By what a stored array may be a multiple of a variable: as a whole, or channel by channel."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from keras_transformer.export.data.weights import StoredWeight
from keras_transformer.export.verification.weights.images import is_alike, numbers_at, positions_in, transposed

# Numbers are the same multiple if their ratios are equal up to this share.
SIMILAR = 1e-5
# Two roundings of float32, of a product with two numbers, as a share of the result.
TWO_ROUNDINGS = 1e-6
# Quotients of a few elements are those of another element than the largest of all: up to twice the share, on either side.
_SIMILAR_IN_FEW = 4 * SIMILAR
# How many elements of each axis tell whether all are worth a look.
_FEW = 8


def is_among(number: float, numbers: np.ndarray) -> bool:
    """Whether a number is one of several, up to two roundings."""
    return bool(np.isclose(numbers, number, rtol=TWO_ROUNDINGS, atol=0).any())


def factors_of(stored: StoredWeight, array: np.ndarray) -> set[float]:
    """By what a stored array may be a multiple of a variable, from samples of both.

    Example:

    >>> factors_of(StoredWeight("half", np.ones(3, "float32")), np.full(3, 2, "float32"))
    {0.5}
    """
    found: set[float] = set()
    if not is_alike(stored, array) or not array.size:
        return found
    positions = positions_in(array)
    values = numbers_at(stored.values, positions).astype("float64")
    for each in transposed(array):
        sample = numbers_at(each, positions).astype("float64")
        peak = np.abs(sample).argmax()
        factor = values[peak] / sample[peak] if sample[peak] else 0.0
        if factor and np.allclose(values, factor * sample, rtol=SIMILAR, atol=0):
            found.add(float(factor))
    return found


def channel_factors_of(stored: StoredWeight, array: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """By what the channels of a stored array may be multiples of those of a variable.

    Yields:
        `(matrix, factors)`: the variable as a matrix `(K, N)` or `(N, K)` in the order of the stored array, and the
        factors, `(N,)` or `(N, 1)`, which broadcast to it.
    """
    if not _may_be_multiples(stored, array, ndim=2):
        return
    for each in transposed(array):
        found = stored.values.reshape(each.shape)
        few = _few(each)
        for as_matrix, axis in itertools.product((_by_last_axis, _by_first_axis), (0, 1)):
            if _quotients(as_matrix(found[few]), as_matrix(each[few]), axis, _SIMILAR_IN_FEW) is None:
                continue
            matrix = as_matrix(each)
            factors = _quotients(as_matrix(found), matrix, axis, SIMILAR)
            if factors is not None:
                yield matrix, factors


def two_channel_factors_of(stored: StoredWeight, array: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """By what the output and the input channels of a stored kernel may be multiples of those of a variable.

    Yields:
        `(kernel, factors)`: the variable as `(O, K, I)` in the order of the stored array, and the factors, `(O, 1, I)`,
        which are a product of a vector of output channels with one of input channels.
    """
    if not _may_be_multiples(stored, array, ndim=4):
        return
    for each in transposed(array):
        found = stored.values.reshape(each.shape)
        few = _few(each)
        if _products_of_quotients(_as_kernel(found[few]), _as_kernel(each[few]), _SIMILAR_IN_FEW) is None:
            continue
        kernel = _as_kernel(each)
        factors = _products_of_quotients(_as_kernel(found), kernel, SIMILAR)
        if factors is not None:
            yield kernel, factors


def _may_be_multiples(stored: StoredWeight, array: np.ndarray, ndim: int) -> bool:
    """Whether a stored array has the type and size of a variable, which has `ndim` axes of more than one element."""
    is_like = stored.values.size == array.size and stored.values.dtype.kind == "f"
    return is_like and bool(array.size) and sum(size > 1 for size in array.shape) >= ndim


def _few(array: np.ndarray) -> tuple[slice, ...]:
    """Some elements along each axis: most pairs of arrays are told apart by them, in no time and without a copy."""
    return tuple(slice(None, None, max(1, size // _FEW)) for size in array.shape)


def _by_last_axis(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1, array.shape[-1])


def _by_first_axis(array: np.ndarray) -> np.ndarray:
    return array.reshape(len(array), -1)


def _as_kernel(array: np.ndarray) -> np.ndarray:
    return array.reshape(len(array), -1, array.shape[-1])


def _quotients(found: np.ndarray, array: np.ndarray, axis: int, share: float) -> np.ndarray | None:
    """The factors that make one array another, equal along an axis; None if they are not equal up to a share."""
    peaks = np.abs(array).argmax(axis=axis, keepdims=True)
    divisor = np.take_along_axis(array, peaks, axis)
    factors = np.take_along_axis(found, peaks, axis) / np.where(divisor, divisor, 1)
    return factors if np.allclose(found, factors * array, rtol=share, atol=0) else None


def _products_of_quotients(found: np.ndarray, kernel: np.ndarray, share: float) -> np.ndarray | None:
    """The quotients of two kernels, if they are products of a vector of each outer axis; else None."""
    factors = _quotients(found, kernel, 1, share)
    if factors is None or not factors[0, 0, 0]:
        return None
    is_product = np.allclose(factors * factors[0, 0, 0], factors[:, :, :1] * factors[:1], rtol=share, atol=0)
    return factors if is_product else None
