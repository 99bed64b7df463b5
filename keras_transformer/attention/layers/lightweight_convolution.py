"""Depthwise convolution with normalized filters that heads of channels share."""

from __future__ import annotations

from keras import ops

from keras_transformer.attention.layers.convolution import TokenConvolution
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Shape, Tensor


@serializable
class LightweightConvolution(TokenConvolution):
    """`y = conv(h) W_2 + b_2`, `conv(h)_tc = Σ_k softmax_k(w_nk) h_{t+k-left, c}`, n being the head of channel c.

    `h = glu(x W_1 + b_1)`; `left` is `(kernel_size - 1) // 2`, with causality `kernel_size - 1`; outside the sequence, and
    at padding, h is zero. Time grows with `T · D · (D + kernel_size)`, memory with `T · D`.

    Args:
        num_heads: int >= 1 that divides the width D. Each head of `D / num_heads` channels has one filter.
        kernel_size: int >= 2. How many tokens a filter reads.
        gated: bool. Whether `h` is gated, `glu(a, b) = a ⊙ sigmoid(b)`, or `x W_1 + b_1` as it is.
        dropout: float in [0, 1). Share of the weights of the filters dropped in training.
        kernel_initializer: of the projections and the filters.
        seed: int or None. Of the dropout.

    Call arguments: see `TokenMixer`. Causal and not. Its cache holds the last `kernel_size - 1` tokens.

    Returns:
        `(B, T, D)`; with a cache, `(output, next_cache)`.

    Raises:
        ValueError: sizes out of range; heads that do not divide the width; asked for other keys than queries, scores or an
            `attention_mask`.

    Example:

    >>> import numpy as np
    >>> layer = LightweightConvolution(num_heads=2, kernel_size=3)
    >>> x = np.ones((1, 5, 8), "float32")
    >>> tuple(layer(x, x, use_causal_mask=True).shape)
    (1, 5, 8)

    Reference: Wu et al., Pay Less Attention with Lightweight and Dynamic Convolutions, arXiv 1901.10430, section 3.
    Deviation: padding is zeroed after the first projection, where fairseq zeroes it before, so that it changes nothing.
    """

    def build(self, query_shape: Shape, value_shape: Shape | None = None, key_shape: Shape | None = None) -> None:
        super().build(query_shape, value_shape, key_shape)
        self._filters = self.add_weight(
            name="filters",
            shape=(self.num_heads, self.kernel_size),
            initializer=self.fresh_initializer(),
            autocast=False,
        )

    def convolve(self, x: Tensor, padded: Tensor, training: bool | None = None) -> Tensor:
        filters = ops.softmax(ops.convert_to_tensor(self._filters), axis=-1)
        filters = self._dropout_layer(filters, training=training)
        filters = ops.repeat(ops.transpose(filters), self._width // self.num_heads, axis=1)  # (kernel_size, D)
        return ops.depthwise_conv(padded, ops.cast(ops.expand_dims(filters, 2), padded.dtype), padding="valid")
