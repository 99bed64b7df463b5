"""The patch embedding of images of any size and shape in one batch, of SigLIP 2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

import keras
from keras import ops

from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, LayerOptions, Shape, Tensor
from keras_transformer.vision.patches.patch_embedding import pair_of


@serializable
class NaFlexEmbedding(keras.layers.Layer):
    """Embedding of patches of images of any size and shape: `patch W + b + position`.

    The position table is learned for one grid of patches. The position of a patch is read from it as a bilinear resize
    with antialiasing to the grid of its image would give it, so that images of different grids go into one batch.

    Args:
        hidden_dim: int >= 1. Width of the tokens D.
        grid_size: int or pair of ints: rows and columns of the position table. Default 16.

    Call arguments:
        patches: float `(B, P, F)`: the pixels of each patch, row by row, padded to the largest image. See
            `vision.NaFlexProcessor`.
        patch_grid: int `(B, 2)`: rows and columns of patches of each image. Numbers below 1 count as 1.

    Returns:
        `(B, P, D)`. Padding has the position of the first patch.

    Export: all three formats, any number of patches.

    Example:

    >>> import numpy as np
    >>> layer = NaFlexEmbedding(hidden_dim=8, grid_size=4)
    >>> tuple(layer(np.zeros((2, 6, 12)), np.array([[2, 3], [1, 4]])).shape)
    (2, 6, 8)

    Reference: Tschannen et al., SigLIP 2, arXiv 2502.14786, section 2.4.2 (NaFlex); Dehghani et al., NaViT, arXiv
    2307.06304. Weights beyond the edge of the table are left out and the others scaled up, as in torch.
    """

    position_embeddings: keras.Variable

    def __init__(self, hidden_dim: int, grid_size: int | Sequence[int] = 16, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.hidden_dim = hidden_dim
        self.grid_size = pair_of(grid_size)
        self._projection = keras.layers.Dense(hidden_dim, dtype=self.dtype_policy, name="projection")

    @property
    def probe_limit(self) -> int:
        """Above the numbers of `patch_grid` that an export is tried with: any number is allowed."""
        return 2 * max(self.grid_size)

    def build(self, patches_shape: Shape, patch_grid_shape: Shape) -> None:
        self._projection.build(patches_shape)
        self.position_embeddings = self.add_weight(
            name="position_embeddings",
            shape=(self.grid_size[0] * self.grid_size[1], self.hidden_dim),
            initializer=keras.initializers.TruncatedNormal(stddev=0.02),
        )

    def call(self, patches: Tensor, patch_grid: Tensor) -> Tensor:
        tokens = self._projection(patches)
        grid = ops.maximum(ops.cast(patch_grid, "int32"), 1)
        rows, columns = grid[:, :1], grid[:, 1:]
        index = ops.expand_dims(ops.arange(ops.shape(patches)[1], dtype="int32"), 0)
        index = ops.where(index < rows * columns, index, 0)
        row = index // columns
        down, across = (
            _weights(place, count, size)
            for place, count, size in zip((row, index - row * columns), (rows, columns), self.grid_size, strict=True)
        )
        # Of each patch, a weight of every row of the table: (B, P, G).
        weights = ops.expand_dims(down, 3) * ops.expand_dims(across, 2)
        weights = ops.reshape(weights, (ops.shape(patches)[0], -1, self.grid_size[0] * self.grid_size[1]))
        return tokens + ops.matmul(ops.cast(weights, tokens.dtype), ops.cast(self.position_embeddings, tokens.dtype))

    def compute_output_shape(self, patches_shape: Shape, patch_grid_shape: Shape) -> Shape:
        return (*patches_shape[:2], self.hidden_dim)

    def get_config(self) -> Config:
        return {**super().get_config(), "hidden_dim": self.hidden_dim, "grid_size": self.grid_size}


def _weights(place: Tensor, count: Tensor, size: int) -> Tensor:
    """Weights of `size` samples for a sample of `count`: a triangle around its center, float32 `(B, P, size)`.

    `place`: int `(B, P)`; `count`: int `(B, 1)`.
    """
    scale = size / ops.cast(count, "float32")
    center = ops.expand_dims((ops.cast(place, "float32") + 0.5) * scale, 2)
    width = ops.expand_dims(ops.maximum(scale, 1.0), 2)
    samples = ops.reshape(ops.arange(size, dtype="float32") + 0.5, (1, 1, size))
    weights = ops.maximum(1.0 - ops.abs(samples - center) / width, 0.0)
    return weights / ops.sum(weights, axis=-1, keepdims=True)
