"""Base class of self-attention layers over the tokens of a grid of fixed size."""

from __future__ import annotations

from typing import Unpack

from keras_transformer.attention.arguments import positive
from keras_transformer.attention.layers.attention_wrapper import AttentionWrapper
from keras_transformer.utils.serialization import build_once
from keras_transformer.utils.types import Config, LayerOptions, Shape


class GridAttention(AttentionWrapper):
    """Base of layers whose `attention` sees parts of a grid, each a row of its batch.

    Args:
        num_heads, key_dim: as in `MultiHeadAttention`.
        grid_size: pair of ints >= 1: rows and columns of the tokens, in row-major order.
        **kwargs: those of `AttentionWrapper`.

    A subclass sets `attention`, and `_window_length`, the number of tokens of a part.
    """

    _is_plain = False
    _window_length: int

    def __init__(
        self, num_heads: int, key_dim: int, grid_size: tuple[int, int], **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(num_heads, key_dim, **kwargs)
        self.grid_size = tuple(positive("grid_size", side) for side in grid_size)

    def build(self, query_shape: Shape, value_shape: Shape | None = None, key_shape: Shape | None = None) -> None:
        self._check(query_shape)
        windows = (None, self._window_length, query_shape[-1])
        build_once(self.attention, windows, windows)

    def _check(self, shape):
        rows, columns = self.grid_size
        if shape[1] not in (None, rows * columns):
            raise ValueError(f"A grid of {rows} x {columns} has {rows * columns} tokens. Received: {shape[1]}")

    def get_config(self) -> Config:
        return {**super().get_config(), "grid_size": self.grid_size}
