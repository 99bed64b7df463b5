"""Relative position biases for tokens in a grid."""

from __future__ import annotations

from typing import Unpack

import keras
from keras import ops

from keras_transformer.positions.attention_position import AttentionPosition
from keras_transformer.positions.grids.grid_sides import grid_sides
from keras_transformer.positions.relative.distances import distances
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, Initializer, LayerOptions, Shape, Tensor


@serializable
class RelativeGridBias(AttentionPosition):
    """Relative position bias of Swin: a learned scalar for each head and distance in rows and columns.

    Position p is in row `p // width` and column `p % width` of a grid `(height, width)`, and

        bias_nij = b[row_i - row_j, column_i - column_j, n],

    where distances beyond the grid are clipped. The table has a row for each of the `(2 height - 1) (2 width - 1)`
    distances, in row-major order from the most negative.

    Args:
        grid_size: int or pair of ints >= 1: rows and columns. Defaults to 7, the window of Swin.
        initializer: initializer of the biases. Defaults to truncated normal with standard deviation 0.02.

    Returns:
        A bias, float32 `(1 | B, N, T, S)`.

    Raises:
        ValueError: a side below 1; a mechanism that does not support a bias.

    Example:

    >>> import numpy as np
    >>> position = RelativeGridBias(grid_size=(2, 3), initializer="ones")
    >>> position.build((1, 6, 4, 8))
    >>> np.array(position.bias(np.zeros((1, 6, 4, 8)), np.arange(6), np.arange(6))).shape
    (1, 4, 6, 6)

    Reference: Liu et al., Swin Transformer, arXiv 2103.14030, equation 4.
    """

    needs = frozenset({"bias"})

    def __init__(
        self, grid_size: int | tuple[int, int] = 7, initializer: Initializer = None, **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(**kwargs)
        self.grid_size = grid_sides(grid_size)
        self.initializer = keras.initializers.get(initializer or keras.initializers.TruncatedNormal(stddev=0.02))

    def build(self, query_shape: Shape, *shapes: Shape) -> None:
        height, width = self.grid_size
        self.embeddings = self.add_weight(
            name="embeddings",
            shape=((2 * height - 1) * (2 * width - 1), query_shape[2]),
            initializer=self.initializer,
            autocast=False,
        )

    def bias(self, query: Tensor, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        height, width = self.grid_size
        indices = None
        for length, span, of in ((height, 2 * width - 1, _row), (width, 1, _column)):
            distance = -distances(of(query_positions, width), of(key_positions, width))
            distance = ops.clip(distance, 1 - length, length - 1) + (length - 1)
            indices = distance * span if indices is None else indices + distance
        bias = ops.take(ops.transpose(self.embeddings), indices, axis=1)  # (N, 1 | B, T, S)
        return ops.transpose(bias, (1, 0, 2, 3))

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "grid_size": self.grid_size,
            "initializer": keras.initializers.serialize(self.initializer),
        }


def _row(positions, width):
    return ops.floor_divide(positions, width)


def _column(positions, width):
    return positions - ops.floor_divide(positions, width) * width
