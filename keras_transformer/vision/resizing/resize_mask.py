"""Masks of pixels in the size of feature maps."""

from __future__ import annotations

import keras
from keras import ops

from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Shape, Tensor


@serializable
class ResizeMask(keras.layers.Layer):
    """The mask of the pixels of images in the size of a feature map: pixel i of h is pixel `⌊i H / h⌋` of H.

    Call arguments:
        mask: boolean `(B, height, width)`, True = a real pixel.
        like: `(B, rows, columns, channels)`: only its size counts, which may be dynamic.

    Returns:
        boolean `(B, rows, columns)`.

    Example:

    >>> import numpy as np
    >>> mask = np.array([[[True, True, True, False, False]]])
    >>> np.asarray(ResizeMask()(mask, np.zeros((1, 1, 3, 8)))).tolist()
    [[[True, True, False]]]
    """

    def call(self, mask: Tensor, like: Tensor) -> Tensor:
        x = ops.cast(mask, "int32")
        for axis in (1, 2):
            new, old = ops.shape(like)[axis], ops.shape(mask)[axis]
            x = ops.take(x, ops.arange(new, dtype="int32") * old // new, axis=axis)
        return ops.cast(x, "bool")

    def compute_output_spec(self, mask: Tensor, like: Tensor) -> keras.KerasTensor:
        return keras.KerasTensor((mask.shape[0], *like.shape[1:3]), dtype="bool")

    def compute_output_shape(self, mask_shape: Shape, like_shape: Shape) -> Shape:
        return (mask_shape[0], *like_shape[1:3])
