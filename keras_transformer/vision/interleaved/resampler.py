"""The Perceiver Resampler: a fixed number of image tokens from learned queries."""

from __future__ import annotations

from typing import Unpack

import keras
from keras import ops

from keras_transformer.attention import MultiHeadAttention
from keras_transformer.utils.serialization import build_once, resolve, serializable, serialize
from keras_transformer.utils.types import Config, LayerOptions, Shape, Tensor


@serializable
class Resampler(keras.layers.Layer):
    """Perceiver Resampler: learned queries attend to any number of features, `Attention(Q, [x; Q])`.

    Args:
        num_tokens: int >= 1. L, the number of queries and of output tokens.
        attention: `MultiHeadAttention`, or its config.

    Call arguments:
        inputs: float `(B, S, D)`.
        padding_mask: boolean `(B, S)`, True = a real feature; or None.

    Returns:
        `(B, L, D)`.

    Raises:
        ValueError: `num_tokens` below 1; attention with a mechanism that supports self-attention only.

    Export: all three formats.

    Example:

    >>> import numpy as np
    >>> resampler = Resampler(4, MultiHeadAttention(num_heads=2, key_dim=3))
    >>> tuple(resampler(np.ones((1, 50, 6))).shape)
    (1, 4, 6)

    Reference: Alayrac et al., Flamingo, arXiv 2204.14198, section 3.1.1 (the Perceiver Resampler; here one layer of it,
    without a feed-forward), as in Kosmos-2, Peng et al., arXiv 2306.14824.
    """

    queries: keras.Variable

    def __init__(self, num_tokens: int, attention: MultiHeadAttention | Config, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        if not isinstance(num_tokens, int) or num_tokens < 1:
            raise ValueError(f"num_tokens must be a positive integer. Received: {num_tokens!r}")
        self.num_tokens = num_tokens
        self.attention = resolve(attention, {}, MultiHeadAttention, argument="attention")
        if "cross" not in self.attention.supports:
            raise ValueError(
                f"{self.attention.name} supports self-attention only: its queries cannot attend to features."
            )

    def build(self, inputs_shape: Shape, padding_mask_shape: Shape | None = None) -> None:
        width = inputs_shape[-1]
        self.queries = self.add_weight(
            name="queries", shape=(self.num_tokens, width), initializer=keras.initializers.RandomNormal(stddev=1.0)
        )
        build_once(self.attention, (inputs_shape[0], self.num_tokens, width), inputs_shape)

    def call(self, inputs: Tensor, padding_mask: Tensor | None = None, training: bool | None = None) -> Tensor:
        # A sum instead of a broadcast, which TFLite's delegates do not support.
        queries = ops.cast(self.queries, inputs.dtype) + ops.zeros_like(inputs[:, :1])
        value = ops.concatenate([inputs, queries], axis=1)
        if padding_mask is not None:
            padding_mask = ops.concatenate([padding_mask, ops.ones_like(queries[..., 0], dtype="bool")], axis=1)
        return self.attention(queries, value, value_mask=padding_mask, training=training)

    def compute_output_shape(self, inputs_shape: Shape, padding_mask_shape: Shape | None = None) -> Shape:
        return (inputs_shape[0], self.num_tokens, inputs_shape[-1])

    def get_config(self) -> Config:
        return {**super().get_config(), "num_tokens": self.num_tokens, "attention": serialize(self.attention)}
