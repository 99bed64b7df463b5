"""Gated linear unit without a feed-forward."""

from __future__ import annotations

from typing import Unpack

import keras

from keras_transformer.layers.projection import token_projection
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, Initializer, LayerOptions, Shape, Tensor


@serializable
class GatedLinearUnit(keras.layers.Layer):
    """Gated linear unit: `(x W + b) ⊙ sigmoid(x V + c)`, with as many output as input channels.

    `GatedFeedForward(activation="sigmoid")` has in addition a hidden width and an output projection.

    Args:
        use_bias: bool. Whether there are biases b and c.
        kernel_initializer: initializer of W and V.

    Call arguments:
        inputs: float `(B, T, D)`.

    Returns:
        `(B, T, D)`.

    Raises:
        ValueError: unknown initializer.

    Example:

    >>> import numpy as np
    >>> layer = GatedLinearUnit(kernel_initializer="zeros")
    >>> layer(np.ones((1, 2, 3))).numpy().tolist()
    [[[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]]

    Reference: Dauphin et al., Language Modeling with Gated Convolutional Networks, arXiv 1612.08083, equation 1, with
    kernels of one token.
    """

    def __init__(
        self, use_bias: bool = True, kernel_initializer: Initializer = "glorot_uniform", **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(**kwargs)
        self.use_bias = use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.supports_masking = True

    def build(self, input_shape: Shape) -> None:
        self._value_dense = token_projection(self, "value", input_shape[-1], self.use_bias)
        self._gate_dense = token_projection(self, "gate", input_shape[-1], self.use_bias, activation="sigmoid")
        self._value_dense.build(input_shape)
        self._gate_dense.build(input_shape)

    def call(self, inputs: Tensor) -> Tensor:
        return self._value_dense(inputs) * self._gate_dense(inputs)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "use_bias": self.use_bias,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }
