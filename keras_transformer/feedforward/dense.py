"""Dense feed-forward of the Transformer."""

from __future__ import annotations

from typing import Unpack

import keras

from keras_transformer.feedforward.activations import get_activation
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.norms import NORMS
from keras_transformer.layers.projection import Projection
from keras_transformer.utils.serialization import clone, resolve, serializable, serialize
from keras_transformer.utils.types import Activation, Config, Initializer, LayerOptions, Shape, Tensor


@serializable
class DenseFeedForward(keras.layers.Layer):
    """Dense feed-forward: `activation(x W_1 + b_1) W_2 + b_2`, with an optional norm of the hidden layer before W_2.

    Args:
        intermediate_dim: int >= 1. Width of the hidden layer.
        activation: "relu", "gelu" (exact), "gelu_tanh", "silu", or any activation of Keras.
        dropout: float in [0, 1). Dropout rate of the hidden layer.
        use_bias: bool. Whether both maps have biases.
        kernel_initializer: initializer of both kernels.
        seed: int or None. Seed of the dropout.
        hidden_norm: None, "layer_norm", "rms_norm", or a norm layer to copy: of the hidden layer, after its dropout.
        use_output_bias: bool, or None for `use_bias`. Whether the second map has a bias.

    Call arguments:
        inputs: float `(B, T, D)`.

    Returns:
        `(B, T, D)`.

    Raises:
        ValueError: `intermediate_dim` below 1.

    Example:

    >>> import numpy as np
    >>> layer = DenseFeedForward(3, activation="relu", kernel_initializer="ones")
    >>> layer(np.array([[[1.0, 2.0]]])).numpy().tolist()
    [[[9.0, 9.0]]]

    Reference: Vaswani et al., arXiv 1706.03762, equation 2; norm of the hidden layer: Wang et al., Magneto, arXiv
    2210.06423, section 2.2.
    """

    _is_gated = False

    def __init__(
        self,
        intermediate_dim: int,
        activation: Activation = "relu",
        dropout: float = 0.0,
        use_bias: bool = True,
        kernel_initializer: Initializer = "glorot_uniform",
        seed: int | None = None,
        hidden_norm: str | Config | keras.layers.Layer | None = None,
        use_output_bias: bool | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        if not isinstance(intermediate_dim, int) or intermediate_dim < 1:
            raise ValueError(f"intermediate_dim must be a positive integer. Received: {intermediate_dim!r}")
        self.intermediate_dim = intermediate_dim
        self.activation = get_activation(activation, gated=self._is_gated)
        self.dropout = dropout
        self.use_bias = use_bias
        self.use_output_bias = use_output_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.seed = seed
        self.hidden_norm = resolve(hidden_norm, NORMS, keras.layers.Layer, argument="hidden_norm")
        self._hidden_norm = clone(self.hidden_norm, name="hidden_norm", dtype=self.dtype_policy)
        self.supports_masking = True
        self._dropout_layer = Dropout(dropout, seed=seed, dtype=self.dtype_policy)

    def build(self, input_shape: Shape) -> None:
        self._hidden_dense = self._dense("hidden", self.intermediate_dim, self.activation)
        self._hidden_dense.build(input_shape)
        self._build_output(input_shape)

    def _build_output(self, input_shape):
        hidden_shape = (*input_shape[:-1], self.intermediate_dim)
        if self.hidden_norm is not None:
            self._hidden_norm.build(hidden_shape)
        has_bias = self.use_bias if self.use_output_bias is None else self.use_output_bias
        self._output_dense = self._dense("output", input_shape[-1], use_bias=has_bias)
        self._output_dense.build(hidden_shape)

    def _dense(self, name, units, activation=None, use_bias=None):
        has_bias = self.use_bias if use_bias is None else use_bias
        initializer = self.kernel_initializer.clone()
        return Projection(
            "btd,df->btf",
            output_shape=(None, units),
            activation=activation,
            bias_axes="f" if has_bias else None,
            kernel_initializer=initializer,
            dtype=self.dtype_policy,
            name=name,
        )

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        hidden = self._dropout_layer(self._hidden(inputs), training=training)
        return self._output_dense(hidden if self.hidden_norm is None else self._hidden_norm(hidden))

    def _hidden(self, inputs):
        return self._hidden_dense(inputs)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "intermediate_dim": self.intermediate_dim,
            "activation": keras.activations.serialize(self.activation),
            "dropout": self.dropout,
            "use_bias": self.use_bias,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "seed": self.seed,
            "hidden_norm": serialize(self.hidden_norm),
            "use_output_bias": self.use_output_bias,
        }
