"""Image tokens from the order of windows to that of a text."""

from __future__ import annotations

from typing import Unpack

import keras
from keras import ops

from keras_transformer.attention.arguments import positive
from keras_transformer.layers.row_gather import take_of_row
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, LayerOptions, Shape, Tensor
from keras_transformer.vision.positions.images_at import images_at, of_images


@serializable
class UnrollWindows(keras.layers.Layer):
    """Orders the tokens of images as a text has them: image after image, each row by row, without padding between.

    Args:
        window_size: int >= 1: rows and columns of tokens in a window.

    Call arguments:
        tokens: float `(B, I, N, D)`: I images for each row, of `N / window_size²` windows each. See `WindowCoordinates`.
        grid: int `(B, I, 2)`: rows and columns of tokens of each image, zeros for none.

    Returns:
        `(B, I, N, D)`: the tokens in order along both middle axes, then zeros.

    Export: all three formats, any number of images and windows.

    Example:

    >>> import numpy as np
    >>> tokens = np.array([1.0, 2.0, 4.0, 5.0, 3.0, 0.0, 6.0, 0.0]).reshape(1, 1, 8, 1)
    >>> UnrollWindows(2)(tokens, np.array([[[2, 3]]])).numpy().ravel().tolist()
    [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 0.0, 0.0]
    """

    def __init__(self, window_size: int, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.window_size = positive("window_size", window_size)

    def call(self, tokens: Tensor, grid: Tensor) -> Tensor:
        side, (batch, count, length, width) = self.window_size, ops.shape(tokens)
        number = ops.expand_dims(ops.arange(count * length, dtype="int32"), 0)
        grid = ops.cast(grid, "int32")
        before, here = images_at(number, grid)
        number = number - of_images(before, grid[:, :, 0] * grid[:, :, 1])
        columns = ops.maximum(of_images(here, grid[:, :, 1]), 1)
        row = number // columns
        column = number - row * columns
        down, across = row // side, column // side
        window = down * ((columns + side - 1) // side) + across
        slot = window * side * side + (row - down * side) * side + column - across * side
        # A grid of more tokens than there are has zeros in their place.
        image, is_token = ops.sum(before, axis=2), ops.sum(here, axis=2) * ops.cast(slot < length, "int32")
        # Behind the last token anything is read, and not used.
        flat = ops.where(ops.cast(is_token, "bool"), image * length + slot, 0)
        ordered = take_of_row(ops.reshape(tokens, (batch, -1, width)), flat)
        ordered = ordered * ops.cast(ops.expand_dims(is_token, 2), ordered.dtype)
        return ops.reshape(ordered, (batch, count, length, width))

    def compute_output_shape(self, tokens_shape: Shape, grid_shape: Shape) -> Shape:
        return tokens_shape

    def get_config(self) -> Config:
        return {**super().get_config(), "window_size": self.window_size}
