"""Mix-FFN of SegFormer."""

from __future__ import annotations

from typing import Unpack

import keras

from keras_transformer.feedforward.activations import get_activation
from keras_transformer.layers.dropout import Dropout
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Activation, Config, Initializer, LayerOptions, Shape, Tensor


@serializable
class MixFeedForward(keras.layers.Layer):
    """Mix-FFN: `activation(d(x W_1 + b_1)) W_2 + b_2`, with a depthwise convolution d over the grid of the tokens.

    The zeros around the grid tell tokens where they are: there is no position embedding.

    Args:
        intermediate_dim: int >= 1. Width of the hidden layer.
        kernel_size: int >= 1, odd. Of the convolution, which keeps rows and columns. Default 3.
        activation: "relu", "gelu" (exact), "gelu_tanh", "silu", or any activation of Keras. Default "gelu".
        dropout: float in [0, 1). Dropout rate of the hidden layer.
        kernel_initializer: initializer of the three kernels.
        seed: int or None. Seed of the dropout.

    Call arguments:
        inputs: float `(B, rows, columns, D)`, of any number of rows and columns.

    Returns:
        `(B, rows, columns, D)`.

    Raises:
        ValueError: `intermediate_dim` below 1; an even kernel size.

    Example:

    >>> import numpy as np
    >>> tuple(MixFeedForward(16)(np.zeros((1, 5, 6, 8))).shape)
    (1, 5, 6, 8)

    Reference: Xie et al., SegFormer, arXiv 2105.15203, equation 3.
    """

    def __init__(
        self,
        intermediate_dim: int,
        kernel_size: int = 3,
        activation: Activation = "gelu",
        dropout: float = 0.0,
        kernel_initializer: Initializer = "glorot_uniform",
        seed: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        if not isinstance(intermediate_dim, int) or intermediate_dim < 1:
            raise ValueError(f"intermediate_dim must be a positive integer. Received: {intermediate_dim!r}")
        if kernel_size < 1 or kernel_size % 2 == 0:
            raise ValueError(f"kernel_size must be a positive odd integer. Received: {kernel_size}")
        self.intermediate_dim = intermediate_dim
        self.kernel_size = kernel_size
        self.activation = get_activation(activation)
        self.dropout = dropout
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.seed = seed
        self._dropout_layer = Dropout(dropout, seed=seed, dtype=self.dtype_policy)

    def build(self, input_shape: Shape) -> None:
        policy, hidden_shape = self.dtype_policy, (*input_shape[:-1], self.intermediate_dim)
        self._hidden_dense = self._dense(self.intermediate_dim, "hidden")
        self._depthwise = keras.layers.DepthwiseConv2D(
            self.kernel_size,
            padding="same",
            depthwise_initializer=self.kernel_initializer.clone(),
            dtype=policy,
            name="depthwise",
        )
        self._output_dense = self._dense(input_shape[-1], "output")
        self._hidden_dense.build(input_shape)
        self._depthwise.build(hidden_shape)
        self._output_dense.build(hidden_shape)

    def _dense(self, units, name):
        initializer = self.kernel_initializer.clone()
        return keras.layers.Dense(units, kernel_initializer=initializer, dtype=self.dtype_policy, name=name)

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        hidden = self.activation(self._depthwise(self._hidden_dense(inputs)))
        return self._output_dense(self._dropout_layer(hidden, training=training))

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "intermediate_dim": self.intermediate_dim,
            "kernel_size": self.kernel_size,
            "activation": keras.activations.serialize(self.activation),
            "dropout": self.dropout,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "seed": self.seed,
        }
