"""Base class of lightweight and dynamic convolution."""

from __future__ import annotations

from typing import Unpack

import keras
from keras import ops

from keras_transformer.attention.arguments import check_shapes, positive
from keras_transformer.attention.mixer import MixerInputs
from keras_transformer.attention.partition.bands import last_rows, pad_length
from keras_transformer.attention.token_mixer import TokenMixer, zero_masked
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.projection import token_projection
from keras_transformer.utils.types import Cache, Config, Initializer, LayerOptions, Shape, Tensor


class TokenConvolution(TokenMixer):
    """Base class of depthwise convolutions with one filter per head: `y = conv(h) W_2 + b_2`, `h = glu(x W_1 + b_1)`.

    Tap k of the filter at token t reads token `t + k - left`, with `left = (kernel_size - 1) // 2`, or `kernel_size - 1` if
    causal. Padding, and tokens outside the sequence, are zeros. A subclass implements `convolve`.
    """

    def __init__(
        self,
        num_heads: int,
        kernel_size: int = 7,
        gated: bool = True,
        dropout: float = 0.0,
        kernel_initializer: Initializer = "glorot_uniform",
        seed: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.num_heads = positive("num_heads", num_heads)
        if positive("kernel_size", kernel_size) == 1:
            raise ValueError("kernel_size must be 2 or more. Received: 1")
        self.kernel_size = kernel_size
        self.gated = gated
        self.dropout = dropout
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.seed = seed
        self._dropout_layer = Dropout(dropout, seed=seed, dtype="float32")

    output_dense = property(lambda self: self._output_dense)

    def build(self, query_shape: Shape, value_shape: Shape | None = None, key_shape: Shape | None = None) -> None:
        value_shape = query_shape if value_shape is None else value_shape
        check_shapes(query_shape, value_shape, value_shape)
        self._width = query_shape[-1]
        if self._width % self.num_heads:
            raise ValueError(f"num_heads={self.num_heads} must divide the number of channels, {self._width}.")
        self._input_dense = self._project("input", self._width * (2 if self.gated else 1), query_shape)
        self._output_dense = self._project("output", self._width, query_shape)

    def _project(self, name, width, input_shape, use_bias=True):
        dense = token_projection(self, name, width, use_bias)
        dense.build(input_shape)
        return dense

    def fresh_initializer(self) -> keras.Initializer:
        """Returns a copy of the initializer: a shared one would make equal weights."""
        return self.kernel_initializer.clone()

    def convolve(self, x: Tensor, padded: Tensor, training: bool | None = None) -> Tensor:
        """Returns the convolution of `x`.

        Args:
            x: `(B, T, D)`.
            padded: `(B, T + kernel_size - 1, D)`: x with the tokens before and after it that the filters read.

        Returns:
            `(B, T, D)`.
        """
        raise NotImplementedError

    def mix(self, inputs: MixerInputs) -> Tensor:
        x, visibility = inputs.query, inputs.visibility
        x = zero_masked(self._project_input(x), visibility.query_mask)
        context = self.kernel_size - 1
        left = context if visibility.causal else context // 2
        return self._project_output(self.convolve(x, pad_length(x, left, context - left), inputs.training), visibility)

    def init_cache(self, batch_size: int, max_length: int, dtype: str | None = None) -> Cache:
        """Returns an empty cache of the last `kernel_size - 1` tokens: "recent_inputs" `(B, kernel_size - 1, D)`."""
        shape = (batch_size, self.kernel_size - 1, self._width)
        return {"recent_inputs": ops.zeros(shape, dtype=dtype or self.compute_dtype)}

    def extend(self, inputs: MixerInputs) -> tuple[Tensor, Cache]:
        x, visibility = inputs.query, inputs.visibility
        x = zero_masked(self._project_input(x), visibility.query_mask)
        recent = inputs.cache["recent_inputs"]
        joined = ops.concatenate([ops.cast(recent, x.dtype), x], axis=1)
        output = self._project_output(self.convolve(x, joined, inputs.training), visibility)
        following = last_rows(joined, ops.shape(x)[1], visibility.query_mask, self.kernel_size - 1)
        return output, {"recent_inputs": ops.cast(following, recent.dtype)}

    def _project_input(self, x):
        hidden = self._input_dense(x)
        if not self.gated:
            return hidden
        return hidden[..., : self._width] * ops.sigmoid(hidden[..., self._width :])

    def _project_output(self, x, visibility):
        return self._output_dense(zero_masked(x, visibility.query_mask))

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "kernel_size": self.kernel_size,
            "gated": self.gated,
            "dropout": self.dropout,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "seed": self.seed,
        }
