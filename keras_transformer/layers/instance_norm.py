"""Instance normalization over time."""

from __future__ import annotations

from typing import Unpack

import keras
from keras import ops

from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, LayerOptions, Shape, Tensor


@serializable
class InstanceNormalization(keras.layers.Layer):
    """Instance normalization of sequences: `γ (x - μ) / √(σ² + ε) + β`, with mean and variance of each channel over time.

    It is group normalization with one channel per group. Padding is not counted, so that a row of a batch is normalized as
    it is alone. Computed in float32 under every dtype policy.

    Args:
        epsilon: float > 0. Default 1e-5.

    Call arguments:
        inputs: float `(B, T, C)`.
        padding_mask: boolean `(B, T)`, True = a real frame; None for all real.

    Returns:
        `(B, T, C)`.

    Example:

    >>> import numpy as np
    >>> x = np.array([[[1.0], [3.0], [9.0]]], "float32")
    >>> InstanceNormalization()(x, padding_mask=np.array([[1, 1, 0]])).numpy().round(3).ravel().tolist()
    [-1.0, 1.0, 7.0]

    Reference: Ulyanov et al., arXiv 1607.08022; Wu and He, Group Normalization, arXiv 1803.08494. They have no padding.
    """

    def __init__(self, epsilon: float = 1e-5, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.epsilon = epsilon

    def build(self, inputs_shape: Shape) -> None:
        self.gamma = self.add_weight(name="gamma", shape=(inputs_shape[-1],), initializer="ones")
        self.beta = self.add_weight(name="beta", shape=(inputs_shape[-1],), initializer="zeros")

    def call(self, inputs: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        x = ops.cast(inputs, "float32")
        mean = self._mean(x, padding_mask)
        x = x - mean
        variance = self._mean(ops.square(x), padding_mask)
        scale = ops.cast(self.gamma, "float32") * ops.rsqrt(variance + self.epsilon)
        return ops.cast(x * scale + ops.cast(self.beta, "float32"), self.compute_dtype)

    def _mean(self, x, padding_mask):
        """Returns the means over real frames, `(B, 1, C)`."""
        if padding_mask is None:
            return ops.mean(x, axis=1, keepdims=True)
        real = ops.expand_dims(ops.cast(padding_mask, "bool"), -1)
        count = ops.sum(ops.cast(real, "float32"), axis=1, keepdims=True)
        # Not a product with 0: padding may hold an infinity.
        total = ops.sum(ops.where(real, x, ops.zeros_like(x)), axis=1, keepdims=True)
        return total / ops.maximum(count, 1.0)

    def compute_output_shape(self, inputs_shape: Shape, *args: object, **kwargs: object) -> Shape:
        return inputs_shape

    def get_config(self) -> Config:
        return {**super().get_config(), "epsilon": self.epsilon}
