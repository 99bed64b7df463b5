"""A position table of the tokens of an image, which is resized to other images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import keras
from keras import ops

from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, LayerOptions, Shape, Tensor
from keras_transformer.vision.patches.patch_embedding import pair_of
from keras_transformer.vision.resizing.interpolation import INTERPOLATIONS, dynamic_resize_matrix, resize_matrix


@serializable
class GridPositions(keras.layers.Layer):
    """Learned positions of the patches of an image and of tokens before and after them: `x + table`.

    The rows of the patches are resized to the grid of the image. `PatchEmbedding` has such a table of its own, for images of
    one size and without tokens behind the patches.

    Args:
        patch_size: int or pair of ints. Height and width of a patch in pixels. Default 16.
        grid_size: int or pair of ints: rows and columns of patches of the table. None: those of the images that the layer is
            built with.
        num_first_tokens: int >= 0. Tokens before those of the patches. Default 1.
        num_last_tokens: int >= 0. Tokens after them. Default 0.
        interpolation: "bilinear" or "bicubic". Default "bicubic".

    Call arguments:
        inputs: `(B, T, D)`.
        images: `(B, height, width, channels)`, of any size, which may be dynamic: only their size counts, without pixels
            beyond the last whole patch.

    Returns:
        `(B, T, D)`.

    Raises:
        ValueError: an unknown interpolation; images of a dynamic size without a `grid_size`.

    Example:

    >>> import numpy as np
    >>> layer = GridPositions(patch_size=4, grid_size=(3, 2), num_last_tokens=2)
    >>> tuple(layer(np.zeros((1, 1 + 8 + 2, 6)), np.zeros((1, 16, 8, 3))).shape), tuple(layer.embeddings.shape)
    ((1, 11, 6), (9, 6))

    Reference: Dosovitskiy et al., arXiv 2010.11929, section 3.2; the tokens behind the patches: Fang et al., arXiv
    2106.00666, section 3.1.
    """

    embeddings: keras.Variable
    grid_size: Any  # A pair of ints once the layer is built.

    def __init__(
        self,
        patch_size: int | Sequence[int] = 16,
        grid_size: int | Sequence[int] | None = None,
        num_first_tokens: int = 1,
        num_last_tokens: int = 0,
        interpolation: str = "bicubic",
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        if interpolation not in INTERPOLATIONS:
            raise ValueError(f"interpolation must be 'bilinear' or 'bicubic'. Received: {interpolation!r}")
        self.patch_size = pair_of(patch_size)
        self.grid_size = None if grid_size is None else pair_of(grid_size)
        self.num_first_tokens = num_first_tokens
        self.num_last_tokens = num_last_tokens
        self.interpolation = interpolation

    def build(self, inputs_shape: Shape, images_shape: Shape) -> None:
        if self.grid_size is None:
            if None in images_shape[1:3]:
                raise ValueError(f"Images of a dynamic size need a grid_size. Received shape: {tuple(images_shape)}")
            self.grid_size = tuple(
                side // patch for side, patch in zip(images_shape[1:3], self.patch_size, strict=True)
            )
        rows, columns = self.grid_size
        self.embeddings = self.add_weight(
            name="embeddings",
            shape=(self.num_first_tokens + rows * columns + self.num_last_tokens, inputs_shape[-1]),
            initializer=keras.initializers.TruncatedNormal(stddev=0.02),
        )

    def call(self, inputs: Tensor, images: Tensor) -> Tensor:
        grid = [side // patch for side, patch in zip(ops.shape(images)[1:3], self.patch_size, strict=True)]
        table = ops.convert_to_tensor(self.embeddings)
        is_static = all(isinstance(side, int) for side in grid)
        if not is_static or tuple(grid) != tuple(self.grid_size):
            table = self._resized(table, grid)
        return inputs + ops.cast(ops.expand_dims(table, 0), inputs.dtype)

    def _resized(self, table, grid):
        (rows, columns), depth = self.grid_size, table.shape[-1]
        first, last = self.num_first_tokens, self.num_first_tokens + rows * columns
        down, across = (
            ops.cast(self._matrix(old, new), table.dtype) for old, new in zip(self.grid_size, grid, strict=True)
        )
        patches = ops.matmul(down, ops.reshape(table[first:last], (rows, columns * depth)))
        patches = ops.matmul(across, ops.reshape(patches, (-1, columns, depth)))
        return ops.concatenate([table[:first], ops.reshape(patches, (-1, depth)), table[last:]], axis=0)

    def _matrix(self, length, new_length):
        make = resize_matrix if isinstance(new_length, int) else dynamic_resize_matrix
        return make(length, new_length, self.interpolation)

    def compute_output_shape(self, inputs_shape: Shape, images_shape: Shape) -> Shape:
        return inputs_shape

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "patch_size": self.patch_size,
            "grid_size": self.grid_size,
            "num_first_tokens": self.num_first_tokens,
            "num_last_tokens": self.num_last_tokens,
            "interpolation": self.interpolation,
        }
