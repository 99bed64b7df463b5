"""The base class of the layouts, which is the identity."""

from __future__ import annotations

import numpy as np

Shapes = list[tuple[int, ...]]
Arrays = list[np.ndarray]


class Layout:
    """Base class of the layouts, and the identity: one tensor per weight, of the same shape.

    A layout changes no values, so that a checkpoint is written back byte for byte.

    Attributes:
        dtypes: tuple of safetensors' names of the dtypes that the tensors may have.
    """

    dtypes: tuple[str, ...] = ("F64", "F32", "F16", "BF16")

    def shapes(self, shapes: Shapes) -> Shapes:
        """Returns the shapes of the tensors from those of the weights: list of tuples."""
        return shapes

    def read(self, tensors: Arrays, shapes: Shapes) -> Arrays:
        """Returns the weights, of these shapes, from the tensors: lists of arrays."""
        return tensors

    def write(self, weights: Arrays) -> Arrays:
        """Returns the tensors from the weights: lists of arrays."""
        return weights
