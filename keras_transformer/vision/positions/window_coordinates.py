"""Rows and columns of patches that come in windows."""

from __future__ import annotations

from typing import Unpack

import keras
import numpy as np
from keras import ops

from keras_transformer.attention.arguments import positive
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, LayerOptions, Shape, Tensor


@serializable
class WindowCoordinates(keras.layers.Layer):
    """Rows and columns of patches that come window by window, as `vision.DynamicResolutionProcessor` arranges them.

    Windows cover an image row by row; those at its right and lower edges have padding. In a window, and in turn in its
    groups of patches that become a token, patches are ordered row by row as well.

    Args:
        window_size: int >= 1: rows and columns of groups in a window.
        merge_size: int >= 1: rows and columns of patches in a group. Default 2.

    Call arguments:
        patches: float `(B, W, S, F)`: W windows of S = `(window_size · merge_size)²` patches. Only its shape counts.
        patch_grid: int `(B, 2)`: rows and columns of patches of each image.

    Returns:
        `(positions, mask)`: int32 `(B, W · S, 2)`, the row and the column of each patch, and bool `(B, W · S)`, False for
        padding.

    Export: all three formats, any number of windows.

    Example:

    >>> import numpy as np
    >>> layer = WindowCoordinates(window_size=1, merge_size=2)
    >>> positions, mask = layer(np.zeros((1, 2, 4, 3)), np.array([[2, 3]]))
    >>> positions.numpy()[0, 4:].tolist(), mask.numpy()[0, 4:].tolist()
    ([[0, 2], [0, 3], [1, 2], [1, 3]], [True, False, True, False])

    Reference: Bai et al., Qwen2.5-VL, arXiv 2502.13923, section 2.1.1.
    """

    def __init__(self, window_size: int, merge_size: int = 2, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.window_size = positive("window_size", window_size)
        self.merge_size = positive("merge_size", merge_size)

    @property
    def probe_limit(self) -> int:
        """int: the sides of the grids that an export is proven with are less; these have up to four windows."""
        return 2 * self.window_size * self.merge_size

    def call(self, patches: Tensor, patch_grid: Tensor) -> tuple[Tensor, Tensor]:
        side = self.window_size * self.merge_size
        sides = ops.reshape(ops.cast(patch_grid, "int32"), (-1, 1, 1, 2))
        rows, columns = sides[..., 0], sides[..., 1]  # (B, 1, 1)
        # An image without patches has no windows; the division still needs one.
        across = ops.maximum((columns + side - 1) // side, 1)
        number = ops.reshape(ops.arange(ops.shape(patches)[1], dtype="int32"), (1, -1, 1))
        down = number // across
        row, column = window_offsets(self.window_size, self.merge_size)
        row = down * side + ops.reshape(ops.convert_to_tensor(row), (1, 1, -1))  # (B, W, S)
        column = (number - down * across) * side + ops.reshape(ops.convert_to_tensor(column), (1, 1, -1))
        mask = ops.logical_and(row < rows, column < columns)
        batch = ops.shape(patches)[0]
        return ops.reshape(ops.stack([row, column], axis=3), (batch, -1, 2)), ops.reshape(mask, (batch, -1))

    def compute_output_spec(self, patches: Tensor, patch_grid: Tensor) -> tuple[keras.KerasTensor, keras.KerasTensor]:
        windows, length = patches.shape[1], (self.window_size * self.merge_size) ** 2
        shape: Shape = (patches.shape[0], None if windows is None else windows * length)
        return keras.KerasTensor((*shape, 2), dtype="int32"), keras.KerasTensor(shape, dtype="bool")

    def get_config(self) -> Config:
        return {**super().get_config(), "window_size": self.window_size, "merge_size": self.merge_size}


def window_offsets(window_size: int, merge_size: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of the patches of a window, group by group, int32 `(window_size² · merge_size²,)` each.

    Example:

    >>> [offsets.tolist() for offsets in window_offsets(1, 2)]
    [[0, 0, 1, 1], [0, 1, 0, 1]]
    """
    axes = np.indices((window_size, window_size, merge_size, merge_size), "int32")
    return (axes[0] * merge_size + axes[2]).ravel(), (axes[1] * merge_size + axes[3]).ravel()
