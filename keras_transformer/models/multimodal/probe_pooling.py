"""Attention pooling with a learned probe, the head of SigLIP's image tower."""

from __future__ import annotations

from typing import Unpack

import keras
from keras import ops

from keras_transformer.attention import MultiHeadAttention
from keras_transformer.feedforward import DenseFeedForward
from keras_transformer.feedforward.activations import get_activation
from keras_transformer.layers.norms import LayerNormalization
from keras_transformer.utils.serialization import build_once, serializable
from keras_transformer.utils.types import Activation, Config, LayerOptions, Shape, Tensor


@serializable
class ProbePooling(keras.layers.Layer):
    """Attention pooling with a learned probe: `y = Attention(probe, x)`, then `y + FeedForward(norm(y))`.

    Args:
        num_heads: int that divides the width of the tokens.
        intermediate_dim: int. Width of the hidden layer of the feed-forward.
        activation: activation of the feed-forward.
        layer_norm_epsilon: float > 0.

    Call arguments:
        inputs: float `(B, T, D)`.
        padding_mask: boolean `(B, T)`, True = a real token; or None.

    Returns:
        `(B, D)`.

    Example:

    >>> import numpy as np
    >>> tuple(ProbePooling(num_heads=2, intermediate_dim=8)(np.ones((3, 5, 4))).shape)
    (3, 4)

    Reference: Zhai et al., Scaling Vision Transformers, arXiv 2106.04560, section 3.1 (MAP head); norm and feed-forward as
    in SigLIP's code.
    """

    probe: keras.Variable

    def __init__(
        self,
        num_heads: int,
        intermediate_dim: int,
        activation: Activation = "gelu_tanh",
        layer_norm_epsilon: float = 1e-6,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.intermediate_dim = intermediate_dim
        self.activation = get_activation(activation)
        self.layer_norm_epsilon = layer_norm_epsilon
        self._feedforward = DenseFeedForward(intermediate_dim, activation, dtype=self.dtype_policy, name="feedforward")
        self._norm = LayerNormalization(epsilon=layer_norm_epsilon, dtype=self.dtype_policy, name="norm")

    def build(self, inputs_shape: Shape, padding_mask_shape: Shape | None = None) -> None:
        width = inputs_shape[-1]
        if width % self.num_heads:
            raise ValueError(f"num_heads must divide the width of the tokens, {width}. Received: {self.num_heads}")
        self._attention = MultiHeadAttention(
            self.num_heads, width // self.num_heads, dtype=self.dtype_policy, name="attention"
        )
        self.probe = self.add_weight(
            name="probe", shape=(1, 1, width), initializer=keras.initializers.RandomNormal(stddev=1.0)
        )
        one = (inputs_shape[0], 1, width)
        build_once(self._attention, one, inputs_shape)
        for layer in (self._norm, self._feedforward):
            build_once(layer, one)

    def call(self, inputs: Tensor, padding_mask: Tensor | None = None, training: bool | None = None) -> Tensor:
        # A sum instead of a broadcast, which TFLite's delegates do not support.
        probe = ops.cast(self.probe, inputs.dtype) + ops.zeros_like(inputs[:, :1])
        x = self._attention(probe, inputs, value_mask=padding_mask, training=training)
        return (x + self._feedforward(self._norm(x), training=training))[:, 0]

    def compute_output_shape(self, inputs_shape: Shape, padding_mask_shape: Shape | None = None) -> Shape:
        return (inputs_shape[0], inputs_shape[-1])

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "intermediate_dim": self.intermediate_dim,
            "activation": keras.activations.serialize(self.activation),
            "layer_norm_epsilon": self.layer_norm_epsilon,
        }
