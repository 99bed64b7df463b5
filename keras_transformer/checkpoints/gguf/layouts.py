"""How a tensor of a GGUF file differs from that of transformers."""

from __future__ import annotations

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Same:
    """It does not.

    Example:

    >>> Same().read(np.arange(3))
    array([0, 1, 2])
    """

    def read(self, array: np.ndarray) -> np.ndarray:
        """From GGUF to transformers."""
        return array

    def write(self, array: np.ndarray) -> np.ndarray:
        """From transformers to GGUF."""
        return array

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape in transformers of a shape in GGUF."""
        return shape


@dataclasses.dataclass(frozen=True)
class Interleaved(Same):
    """The rows of each head alternate between the two halves that rotary positions pair: ggml rotates neighbors.

    Args:
        heads: number of heads.

    Example:

    >>> Interleaved(1).read(np.array([0, 10, 1, 11]))
    array([ 0,  1, 10, 11])
    """

    heads: int

    def read(self, array: np.ndarray) -> np.ndarray:
        pairs = array.reshape(self.heads, -1, 2, *array.shape[1:])
        return pairs.swapaxes(1, 2).reshape(array.shape)

    def write(self, array: np.ndarray) -> np.ndarray:
        halves = array.reshape(self.heads, 2, -1, *array.shape[1:])
        return halves.swapaxes(1, 2).reshape(array.shape)


@dataclasses.dataclass(frozen=True)
class PlusOne(Same):
    """The scale of a norm, which transformers stores as a difference from 1.

    Example:

    >>> PlusOne().read(np.array([1.5, 0.5]))
    array([ 0.5, -0.5])
    """

    def read(self, array: np.ndarray) -> np.ndarray:
        return array - np.ones((), array.dtype)

    def write(self, array: np.ndarray) -> np.ndarray:
        return array + np.ones((), array.dtype)


@dataclasses.dataclass(frozen=True)
class Transposed(Same):
    """A matrix that transformers stores as `(inputs, outputs)`, as of GPT-2.

    Example:

    >>> Transposed().shape((3, 2))
    (2, 3)
    """

    def read(self, array: np.ndarray) -> np.ndarray:
        return array.T

    def write(self, array: np.ndarray) -> np.ndarray:
        return array.T

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape[::-1]
