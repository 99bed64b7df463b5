"""Tokens that stand for the objects of an image."""

from __future__ import annotations

from typing import Unpack

import keras
from keras import ops

from keras_transformer.attention.arguments import positive
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, LayerOptions, Shape, Tensor


@serializable
class DetectionTokens(keras.layers.Layer):
    """Learned tokens behind those of an image: `[x; d_1; ...; d_Q]`. Each can find one object.

    Args:
        num_detection_tokens: int >= 1. Q: the largest number of objects of an image. Default 100.

    Call arguments:
        inputs: `(B, T, D)`.

    Returns:
        `(B, T + Q, D)`.

    Raises:
        ValueError: a number below 1.

    Example:

    >>> import numpy as np
    >>> tuple(DetectionTokens(3)(np.ones((2, 5, 8))).shape)
    (2, 8, 8)

    Reference: Fang et al., You Only Look at One Sequence, arXiv 2106.00666, section 3.1; they start from a truncated normal
    distribution of deviation 0.02, as the position table of the Vision Transformer.
    """

    embeddings: keras.Variable

    def __init__(self, num_detection_tokens: int = 100, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.num_detection_tokens = positive("num_detection_tokens", num_detection_tokens)

    def build(self, input_shape: Shape) -> None:
        self.embeddings = self.add_weight(
            name="embeddings",
            shape=(self.num_detection_tokens, input_shape[-1]),
            initializer=keras.initializers.TruncatedNormal(stddev=0.02),
        )

    def call(self, inputs: Tensor) -> Tensor:
        tokens = ops.expand_dims(ops.cast(self.embeddings, inputs.dtype), 0)
        return ops.concatenate([inputs, tokens + ops.zeros_like(inputs[:, :1])], axis=1)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        length = input_shape[1]
        return (input_shape[0], None if length is None else length + self.num_detection_tokens, input_shape[2])

    def get_config(self) -> Config:
        return {**super().get_config(), "num_detection_tokens": self.num_detection_tokens}
