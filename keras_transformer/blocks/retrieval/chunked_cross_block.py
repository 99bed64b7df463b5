"""The chunked cross-attention block of RETRO."""

from __future__ import annotations

from keras_transformer.attention.cache.cached_layer import CachedLayer
from keras_transformer.attention.layers.cross.chunked_cross_attention import ChunkedCrossAttention
from keras_transformer.blocks.decoders.cross_block import CrossBlock
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Cache, DType, Outputs, Shape, Tensor


@serializable
class ChunkedCrossBlock(CachedLayer, CrossBlock):
    """Chunked cross-attention and a feed-forward, each inside a residual scheme.

    A RETRO block is a `DecoderBlock` without a feed-forward, then `NeighborEncoder`, then this block.

    Args:
        attention: `ChunkedCrossAttention` or its config.
        feedforward: a layer `(B, T, D)` to `(B, T, D)` on single tokens, or its config.
        residual: a name in `RESIDUALS`, or a `Residual` instance to copy. Default "pre".
        norm: a name in `NORMS`, or a norm layer to copy. Used if `residual` is a name.
        dropout: float in [0, 1). Dropout rate of the output of each sublayer. Default 0.
        seed: int or None. Seed of the dropout.
        recompute: bool. Whether training keeps only the inputs of the block and recomputes the activations in the backward
            pass: less memory, a third more time. `training.recompute_blocks` sets it in a whole model. Default False.

    Call arguments:
        inputs: float `(B, T, D)`.
        neighbors: float `(B, L, k · r, E)`.
        neighbor_mask: boolean `(B, L, k, r)`: see `ChunkedCrossAttention`.
        padding_mask: boolean `(B, T)`, True = a real token. With a cache it covers the new tokens, padded on the right.
        cache: dict as `init_cache` returns, or None.
        cache_index: int32 `()` or `(B,)`: the number of tokens that each row has read before.

    Returns:
        `(B, T, D)`; with a cache, `(output, cache)`.

    Raises:
        ValueError: unknown names; a feed-forward with a cache.

    Example:

    >>> import numpy as np
    >>> from keras_transformer.attention import ChunkedCrossAttention, MultiHeadAttention
    >>> from keras_transformer.feedforward import DenseFeedForward
    >>> block = ChunkedCrossBlock(ChunkedCrossAttention(MultiHeadAttention(2, 4), chunk_size=3), DenseFeedForward(16))
    >>> tuple(block(np.ones((1, 6, 8)), np.ones((1, 2, 8, 5)), np.ones((1, 2, 2, 4), bool)).shape)
    (1, 6, 8)

    Reference: Borgeaud et al., RETRO, arXiv 2112.04426, section 2.4, equation 5.
    """

    attention_type = ChunkedCrossAttention
    cache_is_rewindable = False

    def build(self, inputs_shape: Shape, neighbors_shape: Shape, neighbor_mask_shape: Shape) -> None:
        self._build_parts(inputs_shape, neighbors_shape, neighbor_mask_shape)

    def call(
        self,
        inputs: Tensor,
        neighbors: Tensor,
        neighbor_mask: Tensor,
        padding_mask: Tensor | None = None,
        cache: Cache | None = None,
        cache_index: Tensor | None = None,
        training: bool | None = None,
    ) -> Outputs:
        past = {"padding_mask": padding_mask, "cache": cache, "cache_index": cache_index}
        next_cache = None

        def feed_forward(x):
            return self._feed_forward(x, padding_mask, training)

        def run(x, neighbors):
            def attend(x):
                nonlocal next_cache
                if cache is None:
                    return self.attention(x, neighbors, neighbor_mask, training=training)
                output, next_cache = self.attention(x, neighbors, neighbor_mask, **past)
                return output

            return self._attend_and_feed_forward(attend, feed_forward, x, padding_mask, training)

        if cache is None:
            return self._run(run, inputs, neighbors, training=training)
        x = run(inputs, neighbors)
        return x, next_cache

    def init_cache(self, batch_size: int, max_length: int | None = None, dtype: DType = None) -> Cache:
        """Returns the empty cache of the attention."""
        return self.attention.init_cache(batch_size, max_length, dtype)

    def compute_output_spec(
        self, inputs: Tensor, *args: object, cache: Cache | None = None, **options: object
    ) -> Outputs:
        return self._output_spec(inputs.shape, cache)
