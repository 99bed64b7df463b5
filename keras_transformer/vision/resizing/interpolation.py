"""Image interpolation as a product with a matrix, which is the same in every runtime."""

from collections.abc import Callable
from typing import cast

import numpy as np
from keras import ops

from keras_transformer.utils.types import Tensor

# Parameter of Keys' cubic in torch and OpenCV; TensorFlow's is -0.5.
_CUBIC = -0.75


def _linear(x, space):
    return space.maximum(0.0, 1.0 - space.abs(x))


def _cubic(x, space):
    x, a = space.abs(x), _CUBIC
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = a * (((x - 5) * x + 8) * x - 4)
    return space.where(x <= 1, near, space.where(x < 2, far, 0.0))


# Kernels, over an array namespace, and half the number of their taps.
INTERPOLATIONS: dict[str, tuple[Callable[..., Tensor], int]] = {"bilinear": (_linear, 1), "bicubic": (_cubic, 2)}


def resize_matrix(length: int, new_length: int, interpolation: str = "bilinear") -> np.ndarray:
    """Returns the matrix M of `new = M old` along one axis: half-pixel centers, edges repeated, no antialiasing.

    Args:
        length: int >= 1.
        new_length: int >= 1.
        interpolation: "bilinear" or "bicubic".

    Returns:
        float32 array `(new_length, length)`.

    Example:

    >>> resize_matrix(2, 4).tolist()
    [[1.0, 0.0], [0.75, 0.25], [0.25, 0.75], [0.0, 1.0]]

    Reference: Keys, Cubic Convolution Interpolation for Digital Image Processing, 1981, with a = -0.75, as in torch.
    """
    kernel, reach = INTERPOLATIONS[interpolation]
    centers = (np.arange(new_length) + 0.5) * length / new_length - 0.5
    first = np.floor(centers).astype(int)
    matrix = np.zeros((new_length, length))
    for tap in range(1 - reach, reach + 1):
        weights = kernel(centers - (first + tap), np)
        np.add.at(matrix, (np.arange(new_length), np.clip(first + tap, 0, length - 1)), weights)
    return matrix.astype("float32")


def dynamic_resize_matrix(length: Tensor | int, new_length: Tensor | int, interpolation: str = "bilinear") -> Tensor:
    """`resize_matrix` for lengths that are known only when the graph runs.

    Args:
        length: int >= 1, or an int32 scalar.
        new_length: int, or an int32 scalar.
        interpolation: "bilinear" or "bicubic".

    Returns:
        float32 tensor `(new_length, length)`.

    Example:

    >>> np.asarray(dynamic_resize_matrix(2, 4)).tolist()
    [[1.0, 0.0], [0.75, 0.25], [0.25, 0.75], [0.0, 1.0]]
    """
    kernel, reach = INTERPOLATIONS[interpolation]
    steps = ops.cast(ops.arange(new_length, dtype="int32"), "float32")
    old = ops.cast(length, "float32")
    centers = (steps + 0.5) * old / ops.cast(new_length, "float32") - 0.5
    first = ops.floor(centers)
    columns = ops.expand_dims(ops.cast(ops.arange(length, dtype="int32"), "float32"), 0)
    matrix = 0.0
    for tap in range(1 - reach, reach + 1):
        place = ops.clip(first + tap, 0.0, old - 1)
        is_place = ops.cast(ops.equal(ops.expand_dims(place, 1), columns), "float32")
        matrix = matrix + is_place * ops.expand_dims(kernel(centers - (first + tap), ops), 1)
    return cast("Tensor", matrix)
