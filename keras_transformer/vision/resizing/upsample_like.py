"""Feature maps enlarged to the size of the next larger one."""

from __future__ import annotations

import keras
from keras import ops

from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Shape, Tensor


@serializable
class UpsampleLike(keras.layers.Layer):
    """Makes a feature map twice as high and wide by repeating its pixels, cropped to the size of another.

    Call arguments:
        inputs: `(B, h, w, C)`.
        like: `(B, rows, columns, channels)`, with `rows <= 2 h` and `columns <= 2 w`: only its size counts, which may be
            dynamic.

    Returns:
        `(B, rows, columns, C)`: pixel i is pixel `⌊i / 2⌋`, of rows and of columns.

    Example:

    >>> import numpy as np
    >>> enlarged = UpsampleLike()(np.array([[[[1.0], [4.0]]]]), np.zeros((1, 2, 3, 5)))
    >>> np.asarray(enlarged)[0, :, :, 0].tolist()
    [[1.0, 1.0, 4.0], [1.0, 1.0, 4.0]]
    """

    def build(self, inputs_shape: Shape, like_shape: Shape) -> None:
        """Does nothing: there are no weights."""

    def call(self, inputs: Tensor, like: Tensor) -> Tensor:
        _, height, width, _ = ops.shape(inputs)
        depth = inputs.shape[-1]
        # Concatenation and reshape alone: every runtime has them.
        x = ops.reshape(ops.concatenate([inputs, inputs], axis=-1), (-1, height, 2 * width * depth))
        x = ops.reshape(ops.concatenate([x, x], axis=-1), (-1, 2 * height, 2 * width, depth))
        rows, columns = ops.shape(like)[1:3]
        sizes = (rows, columns, height, width)
        is_whole = all(isinstance(each, int) for each in sizes) and (rows, columns) == (2 * height, 2 * width)
        return x if is_whole else x[:, :rows, :columns]

    def compute_output_shape(self, inputs_shape: Shape, like_shape: Shape) -> Shape:
        return (inputs_shape[0], *like_shape[1:3], inputs_shape[-1])
