"""Bilinear resizing of feature maps."""

from __future__ import annotations

import keras
from keras import ops

from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Shape, Tensor
from keras_transformer.vision.resizing.interpolation import dynamic_resize_matrix, resize_matrix


@serializable
class ResizeLike(keras.layers.Layer):
    """Resizes feature maps to the rows and columns of others, bilinearly.

    The corners of pixels are aligned, edges repeated, without antialiasing: torch's `interpolate(align_corners=False)`.

    Call arguments:
        inputs: float `(B, rows, columns, C)`.
        like: a tensor `(B, height, width, ...)`: only its size counts.

    Both sizes may be dynamic.

    Returns:
        `(B, height, width, C)`.

    Export: all three formats.

    Example:

    >>> import numpy as np
    >>> resized = ResizeLike()(np.array([[[[0.0], [4.0]]]]), np.zeros((1, 1, 4)))
    >>> np.asarray(resized)[0, 0, :, 0].tolist()
    [0.0, 1.0, 3.0, 4.0]
    """

    def build(self, inputs_shape: Shape, like_shape: Shape) -> None:
        """Does nothing: there are no weights."""

    def call(self, inputs: Tensor, like: Tensor) -> Tensor:
        return resize(inputs, ops.shape(like)[1:3])

    def compute_output_shape(self, inputs_shape: Shape, like_shape: Shape) -> Shape:
        return (inputs_shape[0], *like_shape[1:3], inputs_shape[-1])


def resize(inputs: Tensor, size: tuple[int | Tensor, int | Tensor]) -> Tensor:
    """Resizes `(B, rows, columns, C)` to `size`, a pair of ints or int32 scalars, as `ResizeLike` does."""
    (rows, columns), (height, width), depth = ops.shape(inputs)[1:3], size, inputs.shape[-1]
    x = inputs
    if not _equal(rows, height):
        down = _matrix(rows, height, x.dtype)
        x = ops.matmul(down, ops.reshape(x, (-1, rows, columns * depth)))
        x = ops.reshape(x, (-1, height, columns, depth))
    if not _equal(columns, width):
        across = _matrix(columns, width, x.dtype)
        x = ops.matmul(across, ops.reshape(x, (-1, columns, depth)))
        x = ops.reshape(x, (-1, height, width, depth))
    return x


def _equal(length, new_length):
    return isinstance(length, int) and isinstance(new_length, int) and length == new_length


def _matrix(length, new_length, dtype):
    make = resize_matrix if isinstance(length, int) and isinstance(new_length, int) else dynamic_resize_matrix
    return ops.cast(make(length, new_length), dtype)
