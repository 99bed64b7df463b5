"""Spatial-reduction attention of the Pyramid Vision Transformer and SegFormer."""

from __future__ import annotations

from typing import Unpack

import keras
from keras import ops

from keras_transformer.attention.arguments import positive
from keras_transformer.attention.layers.attention_wrapper import AttentionWrapper
from keras_transformer.attention.mixer import MixerInputs
from keras_transformer.layers.norms import LayerNormalization
from keras_transformer.utils.serialization import build_once, serializable
from keras_transformer.utils.types import Config, Initializer, LayerOptions, Shape, Tensor


@serializable
class SpatialReductionAttention(AttentionWrapper):
    """Spatial-reduction attention: the tokens of a grid attend to a grid that a convolution has made R times smaller.

        y = attention(x, norm(c(x)))

    The convolution c has a kernel and a stride of R x R. Time and memory grow with `T² / R²`. Without reduction, R = 1,
    there is neither convolution nor norm.

    Args:
        num_heads: int >= 1. N.
        key_dim: int >= 1. Width H of each head.
        reduction_ratio: int >= 1. R. Default 1.
        dropout: float in [0, 1). Dropout rate of the attention weights.
        use_bias: bool. Whether the projections of attention have biases.
        layer_norm_epsilon: float > 0. Of the norm of the reduced tokens. Default 1e-5.
        kernel_initializer: initializer of the convolution and of the projections.
        seed: int or None. Seed of the dropout.

    Call arguments: those of `MultiHeadAttention`, for self-attention, with tokens in a grid, `(B, rows, columns, D)`, of any
        size. Rows and columns beyond the last whole R x R tokens are not attended to.

    Returns:
        `(B, rows, columns, D)`.

    Raises:
        ValueError: inputs of another rank; a grid smaller than R x R; an unsupported argument: masks, causality, a cache or
            scores.

    Masks: none. `attention.attention_maps` returns the scores.

    Export: all three formats, with grids of any size.

    Example:

    >>> import numpy as np
    >>> layer = SpatialReductionAttention(num_heads=2, key_dim=4, reduction_ratio=2)
    >>> x = np.ones((1, 4, 6, 8), "float32")
    >>> tuple(layer(x, x).shape)
    (1, 4, 6, 8)

    Reference: Wang et al., Pyramid Vision Transformer, arXiv 2102.12122, section 3.3; the convolution: Xie et al.,
    SegFormer, arXiv 2105.15203, equation 2, as in its published code.
    """

    def __init__(
        self,
        num_heads: int,
        key_dim: int,
        reduction_ratio: int = 1,
        dropout: float = 0.0,
        use_bias: bool = True,
        layer_norm_epsilon: float = 1e-5,
        kernel_initializer: Initializer = "glorot_uniform",
        seed: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(num_heads, key_dim, dropout, use_bias, kernel_initializer, seed, **kwargs)
        self.reduction_ratio = positive("reduction_ratio", reduction_ratio)
        self.layer_norm_epsilon = layer_norm_epsilon

    def build(self, query_shape: Shape, value_shape: Shape | None = None, key_shape: Shape | None = None) -> None:
        self._check(query_shape)
        tokens = (query_shape[0], None, query_shape[-1])
        if self.reduction_ratio > 1:
            policy = self.dtype_policy
            self._convolution = keras.layers.Conv2D(
                query_shape[-1],
                self.reduction_ratio,
                strides=self.reduction_ratio,
                kernel_initializer=self.kernel_initializer.clone(),
                dtype=policy,
                name="reduction",
            )
            self._norm = LayerNormalization(epsilon=self.layer_norm_epsilon, dtype=policy, name="reduction_norm")
            build_once(self._convolution, query_shape)
            build_once(self._norm, tokens)
        build_once(self.attention, tokens, tokens)

    def mix(self, inputs: MixerInputs) -> Tensor:
        x, mask = inputs.query, inputs.visibility.key_mask
        self._check(x.shape)
        if mask is not None:
            raise ValueError(f"{self.name} does not support masks: its keys are sums over several tokens.")
        rows, columns, depth = ops.shape(x)[1], ops.shape(x)[2], x.shape[-1]
        query = reduced = ops.reshape(x, (-1, rows * columns, depth))
        if self.reduction_ratio > 1:
            reduced = self._convolution(x)
            length = ops.shape(reduced)[1] * ops.shape(reduced)[2]
            reduced = self._norm(ops.reshape(reduced, (-1, length, depth)))
        mixed = self.attention(query, reduced, training=inputs.training)
        return ops.reshape(mixed, (-1, rows, columns, depth))

    def compute_output_spec(self, query: Tensor, *arguments: object, **options: object) -> keras.KerasTensor:
        return self._output_spec(query.shape, None)

    def _check(self, shape):
        if len(shape) != 4:
            raise ValueError(
                f"{self.name} takes tokens in a grid, (B, rows, columns, D). Received shape: {tuple(shape)}"
            )
        if any(side is not None and side < self.reduction_ratio for side in shape[1:3]):
            raise ValueError(
                f"{self.name}: a grid of {shape[1]} x {shape[2]} tokens is smaller than "
                f"reduction_ratio={self.reduction_ratio}."
            )

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "reduction_ratio": self.reduction_ratio,
            "layer_norm_epsilon": self.layer_norm_epsilon,
        }
