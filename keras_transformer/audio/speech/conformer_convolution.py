"""The convolution module of the Conformer."""

from __future__ import annotations

from typing import Unpack

import keras
from keras import ops

from keras_transformer.feedforward.activations import get_activation
from keras_transformer.layers.hide_padding import hide_padding
from keras_transformer.utils.processor_config import is_count
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Activation, Config, LayerOptions, Shape, Tensor


@serializable
class ConformerConvolution(keras.layers.Layer):
    """Convolution module of the Conformer: `activation(norm(depthwise(a ⊙ sigmoid(b)))) W_2`, with `(a, b) = x W_1`.

    The depthwise convolution runs over time, one filter for each channel, with as many frames after each frame as before it.
    The norm is a batch normalization, which counts no padding in training.

    Args:
        kernel_size: odd int. Default 9.
        activation: Default "silu".
        use_bias: bool. Whether the projections and the convolution have biases. Default True.

    Call arguments:
        inputs: float `(B, T, D)`.
        padding_mask: boolean `(B, T)`, True = a real frame; None for all real. Padding is set to 0 before the convolution.

    Returns:
        `(B, T, D)`.

    Raises:
        ValueError: an even kernel size, or one below 1.

    Export: all three formats.

    Example:

    >>> import numpy as np
    >>> tuple(ConformerConvolution(kernel_size=3)(np.zeros((1, 5, 8), "float32")).shape)
    (1, 5, 8)

    Reference: Gulati et al., Conformer, arXiv 2005.08100, section 2.2. The norm before it is that of the block.
    """

    def __init__(
        self,
        kernel_size: int = 9,
        activation: Activation = "silu",
        use_bias: bool = True,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        if not is_count(kernel_size) or kernel_size % 2 == 0:
            raise ValueError(f"kernel_size must be an odd int of at least 1. Received: {kernel_size!r}")
        self.kernel_size = kernel_size
        self.activation = get_activation(activation)
        self.use_bias = use_bias

    def build(self, inputs_shape: Shape) -> None:
        policy, width = {"dtype": self.dtype_policy}, inputs_shape[-1]
        biased = {"use_bias": self.use_bias, **policy}
        self._first_dense = keras.layers.Dense(2 * width, name="first_dense", **biased)
        self._depthwise = keras.layers.DepthwiseConv1D(self.kernel_size, padding="same", name="depthwise", **biased)
        # As of torch, whose momentum is 0.1.
        self._norm = keras.layers.BatchNormalization(momentum=0.9, epsilon=1e-5, name="norm", **policy)
        self._last_dense = keras.layers.Dense(width, name="last_dense", **biased)
        for layer in (self._first_dense, self._depthwise, self._norm, self._last_dense):
            layer.build(tuple(inputs_shape))

    def call(self, inputs: Tensor, padding_mask: Tensor | None = None, training: bool | None = None) -> Tensor:
        values, gates = ops.split(self._first_dense(inputs), 2, axis=-1)
        x = self._depthwise(hide_padding(values * ops.sigmoid(gates), padding_mask))
        x = self.activation(self._norm(x, mask=padding_mask, training=training))
        return self._last_dense(x)

    def compute_output_shape(self, inputs_shape: Shape, *args: object, **kwargs: object) -> Shape:
        return inputs_shape

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "kernel_size": self.kernel_size,
            "activation": keras.activations.serialize(self.activation),
            "use_bias": self.use_bias,
        }
