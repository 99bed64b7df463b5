"""The convolution beside the first block of DeBERTa v2."""

from __future__ import annotations

from typing import Unpack

import keras
from keras import ops

from keras_transformer.attention.token_mixer import zero_masked
from keras_transformer.feedforward.activations import get_activation
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.norms import NORMS
from keras_transformer.utils.serialization import build_once, clone, resolve, serializable, serialize
from keras_transformer.utils.types import Activation, Config, Initializer, LayerLike, LayerOptions, Shape, Tensor


@serializable
class NGramInducedEncoding(keras.layers.Layer):
    """N-gram induced input encoding of DeBERTa v2: a convolution of the embeddings, added to the output of a block.

    `z = norm(y + activation(conv(x)))` for embeddings x and the output y of the first block.

    Args:
        kernel_size: odd int >= 1. The number n of tokens of an n-gram. Defaults to 3.
        groups: int >= 1. Groups of channels that are convolved separately; a divisor of D. Defaults to 1.
        activation: activation of the convolution. Defaults to "tanh".
        norm: a name in `NORMS`, or a norm layer to copy.
        dropout: float in [0, 1). Of the convolution, before its activation.
        kernel_initializer: initializer of the kernel, `(kernel_size, D / groups, D)`.
        seed: int or None. Seed of the dropout.

    Call arguments:
        inputs: float `(B, T, D)`. x.
        residual: float `(B, T, D)`. y.
        padding_mask: boolean `(B, T)`, True = a real token. Padding counts as zeros. None: all tokens are real.

    Returns:
        `(B, T, D)`.

    Raises:
        ValueError: an even `kernel_size`; `groups` that do not divide D.

    Export: all three formats.

    Example:

    >>> import numpy as np
    >>> layer = NGramInducedEncoding(kernel_size=3)
    >>> x = np.ones((1, 5, 4), "float32")
    >>> tuple(layer(x, x).shape)
    (1, 5, 4)

    Reference: the published code of DeBERTa version 2 (He et al., arXiv 2006.03654); its activation is after the dropout.
    """

    def __init__(
        self,
        kernel_size: int = 3,
        groups: int = 1,
        activation: Activation = "tanh",
        norm: LayerLike = "layer_norm",
        dropout: float = 0.0,
        kernel_initializer: Initializer = "glorot_uniform",
        seed: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        if kernel_size < 1 or kernel_size % 2 == 0:
            raise ValueError(f"kernel_size must be odd and at least 1. Received: {kernel_size}")
        if groups < 1:
            raise ValueError(f"groups must be at least 1. Received: {groups}")
        self.kernel_size = kernel_size
        self.groups = groups
        self.activation = get_activation(activation)
        self.norm = resolve(norm, NORMS, keras.layers.Layer, argument="norm")
        self._norm = clone(self.norm, name="norm", dtype=self.dtype_policy)
        self.dropout = dropout
        self._dropout_layer = Dropout(dropout, seed=seed, dtype=self.dtype_policy)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.seed = seed
        self.supports_masking = True

    def build(self, inputs_shape: Shape, residual_shape: Shape | None = None, *shapes: Shape) -> None:
        width = inputs_shape[-1]
        if width % self.groups:
            raise ValueError(f"groups must divide the {width} channels. Received: {self.groups}")
        shape = (self.kernel_size, width // self.groups, width)
        self.kernel = self.add_weight(name="kernel", shape=shape, initializer=self.kernel_initializer)
        self.bias = self.add_weight(name="bias", shape=(width,), initializer="zeros")
        build_once(self._norm, inputs_shape)

    def call(
        self, inputs: Tensor, residual: Tensor, padding_mask: Tensor | None = None, training: bool | None = None
    ) -> Tensor:
        x = self._convolve(zero_masked(inputs, padding_mask)) + ops.convert_to_tensor(self.bias)
        x = self.activation(self._dropout_layer(zero_masked(x, padding_mask), training=training))
        return self._norm(residual + x)

    def _convolve(self, x):
        """Returns the convolution, group by group: TensorFlow has grouped convolutions only for a compiled graph."""
        kernel = ops.convert_to_tensor(self.kernel)
        width = kernel.shape[1]
        parts = []
        for start in range(0, kernel.shape[2], width):
            channels = slice(start, start + width)
            parts.append(ops.conv(x[..., channels], kernel[..., channels], padding="same"))
        return parts[0] if len(parts) == 1 else ops.concatenate(parts, axis=-1)

    def compute_output_shape(self, inputs_shape: Shape, *shapes: Shape) -> Shape:
        return inputs_shape

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "kernel_size": self.kernel_size,
            "groups": self.groups,
            "activation": keras.activations.serialize(self.activation),
            "norm": serialize(self.norm),
            "dropout": self.dropout,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "seed": self.seed,
        }
