"""Feed-forward with convolutions over tokens."""

from __future__ import annotations

from typing import Unpack

import keras

from keras_transformer.feedforward.activations import get_activation
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.hide_padding import hide_padding
from keras_transformer.utils.processor_config import is_count
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Activation, Config, LayerOptions, Shape, Tensor


@serializable
class ConvolutionalFeedForward(keras.layers.Layer):
    """Feed-forward with convolutions over tokens in place of maps of each: `conv_2(activation(conv_1(x)))`.

    Args:
        intermediate_dim: int >= 1. Channels of the hidden layer.
        kernel_size: int >= 1. Tokens that each convolution sees: `(kernel_size - 1) // 2` before a token, the others from it
            on. Default 3.
        activation: "relu", "gelu" (exact), "gelu_tanh", "silu", or any activation of Keras. Default "relu".
        dropout: float in [0, 1). Dropout rate of the hidden layer.
        seed: int or None. Seed of the dropout.

    Call arguments:
        inputs: float `(B, T, D)`.
        padding_mask: boolean `(B, T)`, True = a real token; None for all real. Padding is set to 0 before both convolutions.

    Returns:
        `(B, T, D)`, 0 at padding.

    Raises:
        ValueError: `intermediate_dim` or `kernel_size` below 1.

    Export: all three formats.

    Example:

    >>> import numpy as np
    >>> tuple(ConvolutionalFeedForward(16)(np.zeros((1, 5, 8), "float32")).shape)
    (1, 5, 8)

    Reference: Ren et al., FastSpeech, arXiv 1905.09263, section 3.1; in the text encoder of VITS, arXiv 2106.06103.
    """

    def __init__(
        self,
        intermediate_dim: int,
        kernel_size: int = 3,
        activation: Activation = "relu",
        dropout: float = 0.0,
        seed: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        for name, value in (("intermediate_dim", intermediate_dim), ("kernel_size", kernel_size)):
            if not is_count(value):
                raise ValueError(f"{name} must be a positive integer. Received: {value!r}")
        self.intermediate_dim = intermediate_dim
        self.kernel_size = kernel_size
        self.activation = get_activation(activation)
        self.dropout = dropout
        self.seed = seed
        self._dropout_layer = Dropout(dropout, seed=seed, dtype=self.dtype_policy)

    def build(self, input_shape: Shape) -> None:
        options = {"padding": "same", "dtype": self.dtype_policy}
        self._hidden_convolution = keras.layers.Conv1D(
            self.intermediate_dim, self.kernel_size, name="hidden", **options
        )
        self._hidden_convolution.build(tuple(input_shape))
        self._output_convolution = keras.layers.Conv1D(input_shape[-1], self.kernel_size, name="output", **options)
        self._output_convolution.build((*input_shape[:-1], self.intermediate_dim))

    def call(self, inputs: Tensor, padding_mask: Tensor | None = None, training: bool | None = None) -> Tensor:
        hidden = self.activation(self._hidden_convolution(hide_padding(inputs, padding_mask)))
        hidden = self._dropout_layer(hidden, training=training)
        return hide_padding(self._output_convolution(hide_padding(hidden, padding_mask)), padding_mask)

    def compute_output_shape(self, input_shape: Shape, *args: object, **kwargs: object) -> Shape:
        return input_shape

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "intermediate_dim": self.intermediate_dim,
            "kernel_size": self.kernel_size,
            "activation": keras.activations.serialize(self.activation),
            "dropout": self.dropout,
            "seed": self.seed,
        }
