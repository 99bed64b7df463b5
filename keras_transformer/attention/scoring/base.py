"""Base class of scoring functions, and what several of them use."""

from __future__ import annotations

from typing import Unpack

import keras
from keras import ops

from keras_transformer.backend.compilation.xla import dot_products
from keras_transformer.utils.types import Config, LayerOptions, Shape, Tensor


def grouped_scores(query: Tensor, key: Tensor) -> Tensor:
    """`q · k` for every query and key of each head, without a copy of the keys for each head of a group."""
    heads, key_heads = query.shape[2], key.shape[2]
    query = ops.transpose(query, (0, 2, 1, 3))
    if heads == key_heads:
        return dot_products(query, key)
    length, key_length = ops.shape(query)[2], ops.shape(key)[1]
    # Heads that share a key are adjacent: fold them into the length.
    query = ops.reshape(query, (-1, key_heads, heads // key_heads * length, query.shape[3]))
    return ops.reshape(dot_products(query, key), (-1, heads, length, key_length))


def soft_cap(x: Tensor, cap: float) -> Tensor:
    """Soft capping, `c · tanh(x / c)`: about x where x is small, and always within (-c, c)."""
    return ops.tanh(x / cap) * cap


class Scoring(keras.layers.Layer):
    """Base class of scoring functions; without weights by default.

    A subclass implements `call(query, key)`, and `build` if it has weights.
    """

    def __init__(self, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True

    def build(self, query_shape: Shape, key_shape: Shape) -> None:
        pass

    def get_config(self) -> Config:  # Keras serializes a dtype policy only if this is overridden.
        return super().get_config()

    def compute_output_shape(self, query_shape: Shape, key_shape: Shape) -> Shape:
        return (query_shape[0], query_shape[2], query_shape[1], key_shape[1])
