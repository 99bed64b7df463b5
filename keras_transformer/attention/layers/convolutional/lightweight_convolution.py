"""Lightweight convolution: depthwise convolution with normalized filters that are shared within heads."""

from __future__ import annotations

from keras import ops

from keras_transformer.attention.layers.convolutional.convolution import TokenConvolution
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Shape, Tensor


@serializable
class LightweightConvolution(TokenConvolution):
    """Lightweight convolution: `y = conv(h) W_2 + b_2`, `conv(h)_tc = Σ_k softmax_k(w_nk) h_{t+k-left, c}`.

    n is the head of channel c, `h = glu(x W_1 + b_1)`, and `left` is `(kernel_size - 1) // 2`, or `kernel_size - 1` if
    causal. h is zero at padding and outside the sequence. Time grows with `T · D · (D + kernel_size)`, memory with `T · D`.

    Args:
        num_heads: int >= 1 that divides the width D. Each head of `D / num_heads` channels shares one filter.
        kernel_size: int >= 2. The number of tokens that a filter reads.
        gated: bool. Whether `h` is gated, `glu(a, b) = a ⊙ sigmoid(b)`; if not, `h = x W_1 + b_1`.
        dropout: float in [0, 1). Dropout rate of the filter weights.
        kernel_initializer: of the projections and the filters.
        seed: int or None. Seed of the dropout.

    Call arguments: see `TokenMixer`. Causal or bidirectional. The cache holds the last `kernel_size - 1` tokens.

    Returns:
        `(B, T, D)`; with a cache, `(output, next_cache)`.

    Raises:
        ValueError: sizes out of range; `num_heads` does not divide the width; an unsupported argument: cross-attention,
            scores or an `attention_mask`.

    Example:

    >>> import numpy as np
    >>> layer = LightweightConvolution(num_heads=2, kernel_size=3)
    >>> x = np.ones((1, 5, 8), "float32")
    >>> tuple(layer(x, x, use_causal_mask=True).shape)
    (1, 5, 8)

    Reference: Wu et al., Pay Less Attention with Lightweight and Dynamic Convolutions, arXiv 1901.10430, section 3.
    Deviation: padding is zeroed after the first projection, not before as in fairseq, so that it has no influence.
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
