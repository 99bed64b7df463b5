"""Images from the pixels of their patches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

import keras
from keras import ops

from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, LayerOptions, Shape, Tensor
from keras_transformer.vision.patches.patch_embedding import pair_of


@serializable
class Unpatchify(keras.layers.Layer):
    """Puts patches together: tokens that hold the pixels of one patch each to images.

    Args:
        patch_size: int or pair of ints. Height and width of a patch in pixels.
        grid_size: int or pair of ints. Rows and columns of patches.

    Call arguments:
        inputs: `(B, rows · columns, height · width · channels)`, with the pixels of a patch by row, column and channel.

    Returns:
        `(B, rows · height, columns · width, channels)`.

    Raises:
        ValueError: the number of patches is another, or their width is not a multiple of the pixels of a patch.

    Example:

    >>> import numpy as np
    >>> patches = np.arange(8.0).reshape(1, 2, 4)
    >>> Unpatchify(patch_size=2, grid_size=(1, 2))(patches).numpy()[0, :, :, 0].tolist()
    [[0.0, 1.0, 4.0, 5.0], [2.0, 3.0, 6.0, 7.0]]

    Reference: Peebles and Xie, arXiv 2212.09748, section 3.2 (transformer decoder).
    """

    def __init__(
        self, patch_size: int | Sequence[int], grid_size: int | Sequence[int], **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(**kwargs)
        self.patch_size = pair_of(patch_size)
        self.grid_size = pair_of(grid_size)

    def build(self, input_shape: Shape) -> None:
        self._num_channels(input_shape)

    def call(self, inputs: Tensor) -> Tensor:
        (height, width), (rows, columns) = self.patch_size, self.grid_size
        channels = self._num_channels(inputs.shape)
        # Rank 5: width and channels of a patch lie side by side in a row of pixels.
        x = ops.reshape(inputs, (-1, rows, columns, height, width * channels))
        x = ops.transpose(x, (0, 1, 3, 2, 4))
        return ops.reshape(x, (-1, rows * height, columns * width, channels))

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        (height, width), (rows, columns) = self.patch_size, self.grid_size
        return (input_shape[0], rows * height, columns * width, self._num_channels(input_shape))

    def _num_channels(self, input_shape):
        (height, width), (rows, columns) = self.patch_size, self.grid_size
        if input_shape[1] not in (None, rows * columns) or input_shape[-1] % (height * width):
            raise ValueError(
                f"{self.name} takes {rows} x {columns} patches of {height} x {width} pixels. "
                f"Received inputs of shape {tuple(input_shape)}."
            )
        return input_shape[-1] // (height * width)

    def get_config(self) -> Config:
        return {**super().get_config(), "patch_size": self.patch_size, "grid_size": self.grid_size}
