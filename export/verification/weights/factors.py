"""By what a stored array may be a multiple of a variable: as a whole, or channel by channel."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from keras_transformer.export.data.weights import StoredWeight
from keras_transformer.export.verification.weights.images import is_alike, numbers_at, positions_in, transposed

# Numbers are the same multiple if their ratios are equal up to this share.
SIMILAR = 1e-5
# Two roundings of float32, of a product with two numbers, as a share of the result.
TWO_ROUNDINGS = 1e-6


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
                if np.allclose(found, factors * matrix, rtol=SIMILAR, atol=0):
                    yield matrix, factors


def two_channel_factors_of(stored: StoredWeight, array: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """By what the output and the input channels of a stored kernel may be multiples of those of a variable.

    Yields:
        `(kernel, factors)`: the variable as `(O, K, I)` in the order of the stored array, and the factors, `(O, 1, I)`,
        which are a product of a vector of output channels with one of input channels.
    """
    if stored.values.size != array.size or stored.values.dtype.kind != "f" or array.ndim < 4 or not array.size:
        return
    for each in transposed(array):
        if each.ndim < 4:
            continue
        kernel = each.reshape(len(each), -1, each.shape[-1])
        found = stored.values.reshape(kernel.shape)
        peaks = np.abs(kernel).argmax(axis=1, keepdims=True)
        divisor = np.take_along_axis(kernel, peaks, 1)
        factors = np.take_along_axis(found, peaks, 1) / np.where(divisor, divisor, 1)
        is_product = np.allclose(factors * factors[0, 0, 0], factors[:, :, :1] * factors[:1], rtol=SIMILAR, atol=0)
        if is_product and factors[0, 0, 0] and np.allclose(found, factors * kernel, rtol=SIMILAR, atol=0):
            yield kernel, factors
