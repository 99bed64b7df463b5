"""Dynamic convolution: each token predicts the filters that are applied at it."""

from __future__ import annotations

from typing import Unpack

from keras import ops

from keras_transformer.attention.layers.convolutional.convolution import TokenConvolution
from keras_transformer.attention.partition.bands import block_count, pad_length
from keras_transformer.attention.partition.chunks import heads_first, tokens_first
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, Initializer, LayerOptions, Shape, Tensor

# Tokens per band matrix: few products of an efficient size.
_BLOCK = 32


@serializable
class DynamicConvolution(TokenConvolution):
    """Dynamic convolution: `y = conv(h) W_2 + b_2`, `conv(h)_tc = Σ_k softmax_k((h_t W_f + b_f)_nk) h_{t+k-left, c}`.

    n is the head of channel c; b_f is optional. As `LightweightConvolution`, but each token predicts its filters. The
    filters of a block of C tokens form a band matrix, so that each head of a block is one matrix product: time grows with `T
    · D · (D + C + kernel_size)`, memory with `T · (D + num_heads · (C + kernel_size))`, where C is the larger of 32 and the
    kernel size.

    Args:
        num_heads: int >= 1 that divides the width D. Each head of `D / num_heads` channels shares one filter.
        kernel_size: int >= 2. The number of tokens that a filter reads.
        gated: bool. Whether `h = glu(x W_1 + b_1)`; if not, `h = x W_1 + b_1`.
        dropout: float in [0, 1). Dropout rate of the filter weights.
        kernel_initializer: of all projections.
        seed: int or None. Seed of the dropout.
        use_filter_bias: bool. Whether the projection to filters has a bias b_f, as `bias` in fairseq's `DynamicConv`.

    Call arguments: see `TokenMixer`. Causal or bidirectional. The cache holds the last `kernel_size - 1` tokens.

    Returns:
        `(B, T, D)`; with a cache, `(output, next_cache)`.

    Raises:
        ValueError: sizes out of range; `num_heads` does not divide the width; an unsupported argument: cross-attention,
            scores or an `attention_mask`.

    Example:

    >>> import numpy as np
    >>> layer = DynamicConvolution(num_heads=2, kernel_size=3)
    >>> x = np.ones((1, 5, 8), "float32")
    >>> tuple(layer(x, x).shape)
    (1, 5, 8)

    Reference: Wu et al., Pay Less Attention with Lightweight and Dynamic Convolutions, arXiv 1901.10430, section 4.
    Deviation: padding is zeroed after the first projection, so that it has no influence.
    """

    def __init__(
        self,
        num_heads: int,
        kernel_size: int = 7,
        gated: bool = True,
        dropout: float = 0.0,
        kernel_initializer: Initializer = "glorot_uniform",
        seed: int | None = None,
        use_filter_bias: bool = False,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(num_heads, kernel_size, gated, dropout, kernel_initializer, seed, **kwargs)
        self.use_filter_bias = use_filter_bias

    def build(self, query_shape: Shape, value_shape: Shape | None = None, key_shape: Shape | None = None) -> None:
        super().build(query_shape, value_shape, key_shape)
        width = self.num_heads * self.kernel_size
        self._filter_dense = self._project("filter", width, query_shape, use_bias=self.use_filter_bias)

    def convolve(self, x: Tensor, padded: Tensor, training: bool | None = None) -> Tensor:
        length, size = ops.shape(x)[1], max(_BLOCK, self.kernel_size)
        size = size if x.shape[1] is None else min(size, x.shape[1])
        chunks = block_count(length, size)
        filters = ops.reshape(self._filter_dense(x), (-1, length, self.num_heads, self.kernel_size))
        filters = self._dropout_layer(ops.softmax(ops.cast(filters, "float32"), axis=-1), training=training)
        filters = pad_length(ops.cast(filters, padded.dtype), 0, chunks * size - length)
        bands = _bands(heads_first(filters, size, self.num_heads), size)
        windows = self._windows(pad_length(padded, 0, chunks * size - length), chunks, size)
        context = ops.matmul(bands, windows)  # (B · n, N, C, D / N)
        context = ops.reshape(tokens_first(context, size, self.num_heads), (-1, chunks * size, self._width))
        return context[:, :length]

    def get_config(self) -> Config:
        return {**super().get_config(), "use_filter_bias": self.use_filter_bias}

    def _windows(self, padded, chunks, size):
        """`(B, n · C + reach, D)` to `(B · n, N, C + reach, D / N)`: each block with the tokens after it that it reads."""
        reach, channels = self.kernel_size - 1, self._width // self.num_heads
        if isinstance(chunks, int) and chunks == 1:
            windows = padded
        else:  # A block reads at most one block further.
            own = ops.reshape(padded[:, : chunks * size], (-1, size, self._width))
            following = ops.reshape(pad_length(padded, 0, size - reach)[:, size:], (-1, size, self._width))
            windows = ops.concatenate([own, following[:, :reach]], axis=1)
        return heads_first(
            ops.reshape(windows, (-1, size + reach, self.num_heads, channels)), size + reach, self.num_heads
        )


def _bands(filters, size):
    """`(B · n, N, C, kernel_size)` to `(B · n, N, C, C + kernel_size - 1)`: the filter of token i begins at column i.

    Each row is one element too long before the reshape, which shifts each filter one column to the right.
    """
    heads, taps = filters.shape[1], filters.shape[3]
    skewed = ops.pad(filters, ((0, 0), (0, 0), (0, 0), (0, size)))
    skewed = ops.reshape(skewed, (-1, heads, size * (taps + size)))[:, :, :-size]
    return ops.reshape(skewed, (-1, heads, size, size + taps - 1))
