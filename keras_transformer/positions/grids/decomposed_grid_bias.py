"""Decomposed relative position biases for tokens in a grid."""

from __future__ import annotations

from typing import Unpack

import keras
import numpy as np
from keras import ops

from keras_transformer.positions.attention_position import AttentionPosition
from keras_transformer.positions.grids.grid_sides import grid_sides
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, Initializer, LayerOptions, Shape, Tensor


@serializable
class DecomposedGridBias(AttentionPosition):
    """Decomposed relative position bias of MViTv2: a learned vector for each distance in rows, and for each in columns.

        bias_nij = q_ni · a[row_i - row_j] + q_ni · b[column_i - column_j]

    All heads share the vectors. The tokens are all those of a grid, in row-major order: products with vectors are computed
    for each query and each row or column, `T (rows + columns)` of them, and summed for pairs.

    Args:
        grid_size: int or pair of ints >= 1: rows and columns.
        initializer: initializer of the vectors, `(2 rows - 1, H)` and `(2 columns - 1, H)`. Defaults to truncated normal
            with standard deviation 0.02.

    Returns:
        A bias, float32 `(B, N, T, T)`.

    Raises:
        ValueError: a side below 1; other tokens than those of the grid; a mechanism that does not support a bias that reads
            the queries.

    Example:

    >>> import numpy as np
    >>> position = DecomposedGridBias(grid_size=(1, 2), initializer="ones")
    >>> position.build((1, 2, 1, 4))
    >>> np.array(position.bias(np.ones((1, 2, 1, 4), "float32"), np.arange(2), np.arange(2))).tolist()
    [[[[8.0, 8.0], [8.0, 8.0]]]]

    Reference: Li et al., MViTv2, arXiv 2112.01526, equation 4, as in ViTDet (Li et al., arXiv 2203.16527), whose vectors the
    heads share and whose queries are not scaled.
    """

    needs = frozenset({"bias", "query"})

    def __init__(
        self, grid_size: int | tuple[int, ...], initializer: Initializer = None, **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(**kwargs)
        self.grid_size = grid_sides(grid_size)
        self.initializer = keras.initializers.get(initializer or keras.initializers.TruncatedNormal(stddev=0.02))

    def build(self, query_shape: Shape, *shapes: Shape) -> None:
        self.row_embeddings, self.column_embeddings = (
            self.add_weight(
                name=f"{name}_embeddings",
                shape=(2 * length - 1, query_shape[-1]),
                initializer=keras.initializers.get(self.initializer),
            )
            for name, length in zip(("row", "column"), self.grid_size, strict=True)
        )

    def bias(self, query: Tensor, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        (rows, columns), (heads, width) = self.grid_size, query.shape[2:]
        self._check(query.shape[1], query_positions, key_positions)
        x = ops.reshape(ops.transpose(query, (0, 2, 1, 3)), (-1, rows, columns, width))
        by_row = ops.matmul(x, _vectors(self.row_embeddings, rows, x.dtype))
        by_column = ops.matmul(
            ops.transpose(x, (0, 2, 1, 3)), _vectors(self.column_embeddings, columns, x.dtype)
        )  # (B · N, columns, rows, columns)
        by_column = ops.transpose(by_column, (0, 2, 1, 3))
        length = rows * columns
        by_row = ops.cast(ops.reshape(by_row, (-1, length, rows, 1)), "float32")
        by_column = ops.cast(ops.reshape(by_column, (-1, length, 1, columns)), "float32")
        return ops.reshape(by_row + by_column, (-1, heads, length, length))

    def _check(self, *lengths):
        rows, columns = self.grid_size
        for found in (each if each is None or isinstance(each, int) else each.shape[-1] for each in lengths):
            if found not in (None, rows * columns):
                raise ValueError(
                    f"{self.name}: a grid of {rows} x {columns} has {rows * columns} tokens. Received: {found}"
                )

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "grid_size": self.grid_size,
            "initializer": keras.initializers.serialize(self.initializer),
        }


def _vectors(table, length, dtype):
    """Returns the vectors of a table for each place of queries and of keys along one side, `(length, H, length)`."""
    distances = np.arange(length)[:, None] - np.arange(length) + (length - 1)
    vectors = ops.take(ops.convert_to_tensor(table), distances.astype("int32"), axis=0)
    return ops.cast(ops.transpose(vectors, (0, 2, 1)), dtype)
