"""Dilated depth-separable convolutions of VITS."""

from __future__ import annotations

from typing import Unpack

import keras
from keras import ops

from keras_transformer.audio.synthesis.arguments import check_counts, check_odd
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.hide_padding import hide_padding
from keras_transformer.layers.norms import LayerNormalization
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, LayerOptions, Shape, Tensor


@serializable
class DepthSeparableConvolutions(keras.layers.Layer):
    """Residual stack of dilated depth-separable convolutions: `x = x + f(norm(f(norm(depthwise(x))) W))`, f = GELU.

    The dilation of convolution i is `kernel_size^i`, so that the tokens that are seen grow exponentially.

    Args:
        num_layers: int >= 1. Default 3.
        kernel_size: odd int. Default 3.
        dropout: float in [0, 1). Of the output of each convolution. Default 0.
        seed: int or None. Seed of the dropout.

    Call arguments:
        inputs: float `(B, T, D)`.
        padding_mask: boolean `(B, T)`, True = a real token; None for all real. Padding is set to 0 before each convolution.
        condition: float `(B, T, D)`, added to the inputs; None for none.

    Returns:
        `(B, T, D)`, 0 at padding.

    Raises:
        ValueError: an argument out of its range.

    Export: all three formats.

    Example:

    >>> import numpy as np
    >>> tuple(DepthSeparableConvolutions(num_layers=2)(np.zeros((1, 5, 4), "float32")).shape)
    (1, 5, 4)

    Reference: Kim et al., VITS, arXiv 2106.06103, appendix A.
    """

    def __init__(
        self,
        num_layers: int = 3,
        kernel_size: int = 3,
        dropout: float = 0.0,
        seed: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        check_counts(num_layers=num_layers)
        check_odd(kernel_size=kernel_size)
        self.num_layers = num_layers
        self.kernel_size = kernel_size
        self.dropout = dropout
        self.seed = seed
        self._dropout_layer = Dropout(dropout, seed=seed, dtype=self.dtype_policy)

    def build(self, inputs_shape: Shape) -> None:
        policy, width = {"dtype": self.dtype_policy}, inputs_shape[-1]
        self._depthwise, self._pointwise, self._norms = [], [], []
        for index in range(self.num_layers):
            self._depthwise.append(
                keras.layers.DepthwiseConv1D(
                    self.kernel_size,
                    padding="same",
                    dilation_rate=self.kernel_size**index,
                    name=f"depthwise_{index}",
                    **policy,
                )
            )
            self._pointwise.append(keras.layers.Dense(width, name=f"pointwise_{index}", **policy))
            self._norms += [
                LayerNormalization(epsilon=1e-5, name=f"{name}_norm_{index}", **policy)
                for name in ("depthwise", "pointwise")
            ]
        for layer in (*self._depthwise, *self._pointwise, *self._norms):
            layer.build((*inputs_shape[:-1], width))

    def call(
        self,
        inputs: Tensor,
        padding_mask: Tensor | None = None,
        condition: Tensor | None = None,
        training: bool | None = None,
    ) -> Tensor:
        x = inputs if condition is None else inputs + condition
        for index, (depthwise, pointwise) in enumerate(zip(self._depthwise, self._pointwise, strict=True)):
            first_norm, second_norm = self._norms[2 * index : 2 * index + 2]
            hidden = ops.gelu(first_norm(depthwise(hide_padding(x, padding_mask))), approximate=False)
            hidden = ops.gelu(second_norm(pointwise(hidden)), approximate=False)
            x = x + self._dropout_layer(hidden, training=training)
        return hide_padding(x, padding_mask)

    def compute_output_shape(self, inputs_shape: Shape, *args: object, **kwargs: object) -> Shape:
        return inputs_shape

    def get_config(self) -> Config:
        names = ("num_layers", "kernel_size", "dropout", "seed")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}
