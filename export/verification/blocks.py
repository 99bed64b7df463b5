"""Blocks of an array, which are judged apart: rows of the last axis, or of as many last axes as have 16 elements."""

import numpy as np

_LEAST = 16


def block_axes(array: np.ndarray) -> tuple[int, ...]:
    """The last axes that make up one block."""
    count, axes = 1, []
    for axis in reversed(range(array.ndim)):
        if count >= _LEAST:
            break
        count *= array.shape[axis]
        axes.append(axis)
    return tuple(axes)


def block_maximum(array: np.ndarray) -> np.ndarray:
    """The largest value of each block, with the axes of the block kept as sizes of 1.

    Example:

    >>> block_maximum(np.arange(64.0).reshape(2, 32)).ravel()
    array([31., 63.])
    """
    return array.max(axis=block_axes(array), keepdims=True, initial=0)
