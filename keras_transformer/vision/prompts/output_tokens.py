"""Learned tokens before those of a prompt."""

from __future__ import annotations

from typing import Unpack

import keras
from keras import ops

from keras_transformer.attention.arguments import positive
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, LayerOptions, Shape, Tensor


@serializable
class OutputTokens(keras.layers.Layer):
    """Puts learned tokens before those of a prompt; a decoder reads its outputs from them, as from a class token.

    Args:
        num_tokens: int >= 1. K.

    Call arguments:
        inputs: float `(B, N, D)`.

    Returns:
        `(B, K + N, D)`.

    Example:

    >>> import numpy as np
    >>> tuple(OutputTokens(5)(np.zeros((2, 3, 8))).shape)
    (2, 8, 8)

    Reference: Kirillov et al., Segment Anything, arXiv 2304.02643, appendix A (mask decoder).
    """

    embeddings: keras.Variable

    def __init__(self, num_tokens: int, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.num_tokens = positive("num_tokens", num_tokens)

    def build(self, input_shape: Shape) -> None:
        self.embeddings = self.add_weight(
            name="embeddings",
            shape=(self.num_tokens, input_shape[-1]),
            initializer=keras.initializers.RandomNormal(stddev=1.0),
        )

    def call(self, inputs: Tensor) -> Tensor:
        tokens = ops.cast(ops.expand_dims(self.embeddings, 0), inputs.dtype)
        shape = (ops.shape(inputs)[0], self.num_tokens, inputs.shape[-1])
        return ops.concatenate([ops.broadcast_to(tokens, shape), inputs], axis=1)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        length = input_shape[1]
        return (input_shape[0], None if length is None else self.num_tokens + length, input_shape[2])

    def get_config(self) -> Config:
        return {**super().get_config(), "num_tokens": self.num_tokens}
