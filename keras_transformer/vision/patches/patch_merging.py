"""Patch merging of the Swin Transformer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

import keras
from keras import ops

from keras_transformer.attention.arguments import positive
from keras_transformer.layers.norms import LayerNormalization
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, LayerOptions, Shape, Tensor


@serializable
class PatchMerging(keras.layers.Layer):
    """Patch merging: `norm([x_00; x_10; x_01; x_11]) W` of each 2 x 2 tokens, for half the grid and twice the width.

    x_10 is the token below x_00. A grid with an odd side is padded with zeros, at the bottom or on the right.

    Args:
        grid_size: pair of ints >= 1: rows and columns of the tokens, which are in row-major order.
        epsilon: float > 0. Epsilon of the norm. Default 1e-5.

    Call arguments:
        inputs: float `(B, rows · columns, D)`.

    Returns:
        `(B, ceil(rows / 2) · ceil(columns / 2), 2 D)`.

    Raises:
        ValueError: a side below 1.

    Example:

    >>> import numpy as np
    >>> tuple(PatchMerging((4, 3))(np.ones((1, 12, 8))).shape)
    (1, 4, 16)

    Reference: Liu et al., Swin Transformer, arXiv 2103.14030, section 3.1; the order of the four tokens, the norm, and no
    bias, as in its published code.
    """

    def __init__(self, grid_size: Sequence[int], epsilon: float = 1e-5, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.grid_size = tuple(positive("grid_size", side) for side in grid_size)
        self.epsilon = epsilon
        self._norm = LayerNormalization(epsilon=epsilon, dtype=self.dtype_policy, name="norm")

    def build(self, input_shape: Shape) -> None:
        depth = input_shape[-1]
        self._norm.build((*input_shape[:2], 4 * depth))
        self._reduction = keras.layers.Dense(2 * depth, use_bias=False, dtype=self.dtype_policy, name="reduction")
        self._reduction.build((*input_shape[:2], 4 * depth))

    def call(self, inputs: Tensor) -> Tensor:
        (rows, columns), depth = self.grid_size, inputs.shape[-1]
        x = ops.reshape(inputs, (-1, rows, columns, depth))
        if rows % 2 or columns % 2:
            x = ops.pad(x, [[0, 0], [0, rows % 2], [0, columns % 2], [0, 0]])
        x = ops.concatenate([x[:, row::2, column::2] for column in (0, 1) for row in (0, 1)], axis=-1)
        return self._reduction(self._norm(ops.reshape(x, (-1, halved(rows) * halved(columns), 4 * depth))))

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        rows, columns = self.grid_size
        return (input_shape[0], halved(rows) * halved(columns), 2 * input_shape[-1])

    def get_config(self) -> Config:
        return {**super().get_config(), "grid_size": self.grid_size, "epsilon": self.epsilon}


def halved(side: int) -> int:
    """Returns half the number of rows or columns, rounded up."""
    return (side + 1) // 2
