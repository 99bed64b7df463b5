"""The block of ConvNeXt."""

from __future__ import annotations

from typing import Unpack

import keras
from keras import ops

from keras_transformer.feedforward.activations import get_activation
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.norms import LayerNormalization
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Activation, Config, LayerOptions, Shape, Tensor


@serializable
class ConvNeXtBlock(keras.layers.Layer):
    """ConvNeXt block: `x + λ · (activation(norm(d(x)) W_1 + b_1) W_2 + b_2)`, with a depthwise convolution d.

    Args:
        kernel_size: int >= 1, odd. Of the convolution, which keeps height and width. Default 7.
        expansion: int >= 1. Ratio of the width of the hidden layer to that of the input. Default 4.
        activation: of the hidden layer. Default "gelu".
        layer_scale: float. What the scale λ of each channel starts as. Default 1e-6.
        stochastic_depth: float in [0, 1). In training, the share of images that pass the block by. Default 0.
        layer_norm_epsilon: float > 0. Default 1e-6.
        seed: int or None. Seed of the stochastic depth.

    Call arguments:
        inputs: float `(B, height, width, C)`, of any size.

    Returns:
        `(B, height, width, C)`.

    Raises:
        ValueError: a kernel size or an expansion out of range.

    Example:

    >>> import numpy as np
    >>> tuple(ConvNeXtBlock()(np.zeros((1, 5, 6, 8))).shape)
    (1, 5, 6, 8)

    Reference: Liu et al., A ConvNet for the 2020s, arXiv 2201.03545, section 2 and figure 4; the scale as in its code.
    """

    def __init__(
        self,
        kernel_size: int = 7,
        expansion: int = 4,
        activation: Activation = "gelu",
        layer_scale: float = 1e-6,
        stochastic_depth: float = 0.0,
        layer_norm_epsilon: float = 1e-6,
        seed: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        if kernel_size < 1 or kernel_size % 2 == 0:
            raise ValueError(f"kernel_size must be a positive odd integer. Received: {kernel_size}")
        if expansion < 1:
            raise ValueError(f"expansion must be at least 1. Received: {expansion}")
        self.kernel_size = kernel_size
        self.expansion = expansion
        self.activation = get_activation(activation)
        self.layer_scale = layer_scale
        self.stochastic_depth = stochastic_depth
        self.layer_norm_epsilon = layer_norm_epsilon
        self.seed = seed
        policy = self.dtype_policy
        self._depthwise = keras.layers.DepthwiseConv2D(kernel_size, padding="same", dtype=policy, name="depthwise")
        self._norm = LayerNormalization(epsilon=layer_norm_epsilon, dtype=policy, name="norm")
        self._dropout_layer = Dropout(stochastic_depth, noise_shape=(None, 1, 1, 1), seed=seed, dtype=policy)

    def build(self, input_shape: Shape) -> None:
        width, policy = input_shape[-1], self.dtype_policy
        hidden = self.expansion * width
        self._hidden_dense = keras.layers.Dense(hidden, activation=self.activation, dtype=policy, name="hidden")
        self._output_dense = keras.layers.Dense(width, dtype=policy, name="output")
        for layer in (self._depthwise, self._norm, self._hidden_dense):
            layer.build(input_shape)
        self._output_dense.build((*input_shape[:-1], hidden))
        self.scale = self.add_weight(
            name="scale", shape=(width,), initializer=keras.initializers.Constant(self.layer_scale)
        )

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        x = self._output_dense(self._hidden_dense(self._norm(self._depthwise(inputs))))
        return inputs + self._dropout_layer(x * ops.cast(self.scale, x.dtype), training=training)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "kernel_size": self.kernel_size,
            "expansion": self.expansion,
            "activation": keras.activations.serialize(self.activation),
            "layer_scale": self.layer_scale,
            "stochastic_depth": self.stochastic_depth,
            "layer_norm_epsilon": self.layer_norm_epsilon,
            "seed": self.seed,
        }
