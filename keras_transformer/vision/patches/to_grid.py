"""Tokens as the pixels of a grid."""

from __future__ import annotations

import keras
from keras import ops

from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Shape, Tensor


@serializable
class ToGrid(keras.layers.Layer):
    """Puts tokens back in the rows and columns of the feature map that they are of.

    Call arguments:
        inputs: `(B, rows · columns, D)`.
        like: `(B, rows, columns, channels)`: only its size counts, which may be dynamic.

    Returns:
        `(B, rows, columns, D)`.

    Example:

    >>> import numpy as np
    >>> tuple(ToGrid()(np.zeros((1, 6, 8)), np.zeros((1, 2, 3, 5))).shape)
    (1, 2, 3, 8)
    """

    def build(self, inputs_shape: Shape, like_shape: Shape) -> None:
        """Does nothing: there are no weights."""

    def call(self, inputs: Tensor, like: Tensor) -> Tensor:
        return ops.reshape(inputs, (-1, *ops.shape(like)[1:3], inputs.shape[-1]))

    def compute_output_shape(self, inputs_shape: Shape, like_shape: Shape) -> Shape:
        return (*like_shape[:3], inputs_shape[-1])
