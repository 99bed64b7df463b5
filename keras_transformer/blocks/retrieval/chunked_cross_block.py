"""The second half of a block that reads what was retrieved."""

from keras_transformer.attention.cache.cached_layer import CachedLayer
from keras_transformer.attention.layers.chunked_cross_attention import ChunkedCrossAttention
from keras_transformer.blocks.cross_block import CrossBlock
from keras_transformer.utils.serialization import serializable


@serializable
class ChunkedCrossBlock(CachedLayer, CrossBlock):
    """Chunked cross-attention, and a feed-forward, each inside a residual scheme.

    Behind a `DecoderBlock` without feed-forward it makes a RETRO block; between the two stands what encodes the neighbors.

    Args:
        attention: `ChunkedCrossAttention` or its config.
        feedforward: a layer `(B, T, D)` to `(B, T, D)` that looks at each token by itself, or its config.
        residual: a name in `RESIDUALS`, or an instance of `Residual`, of which the block makes copies. Default "pre".
        norm: "layer_norm", "rms_norm", "batch_norm", or a norm layer to copy; for a residual given by name.
        dropout: float in [0, 1). Of what each sublayer gives, before it is added.
        seed: int or None. Of the dropout.
        recompute: bool. Whether, in training, the block keeps only its inputs for the backward pass, and computes the rest
            again there: less memory, a third more time. `training.recompute_blocks` sets it in a whole model.

    Call arguments:
        inputs: float `(B, T, D)`.
        neighbors: float `(B, L, k · r, E)`.
        neighbor_mask: boolean `(B, L, k, r)`: see `ChunkedCrossAttention`.
        padding_mask: boolean `(B, T)`, True = a real token; with a cache over the new tokens, padded on the right.
        cache: dict as `init_cache` returns, or None.
        cache_index: int32 `()` or `(B,)`: how many tokens each row has read before.

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

    def build(self, inputs_shape, neighbors_shape, neighbor_mask_shape):
        self._build_parts(inputs_shape, neighbors_shape, neighbor_mask_shape)

    def call(
        self,
        inputs,
        neighbors,
        neighbor_mask,
        padding_mask=None,
        cache=None,
        cache_index=None,
        training=None,
    ):
        past = {"padding_mask": padding_mask, "cache": cache, "cache_index": cache_index}
        next_cache = None

        def feed_forward(x):
            return self._feed(x, padding_mask, training)

        def run(x, neighbors):
            def attend(x):
                nonlocal next_cache
                if cache is None:
                    return self.attention(x, neighbors, neighbor_mask, training=training)
                output, next_cache = self.attention(x, neighbors, neighbor_mask, **past)
                return output

            return self._attend_and_feed(attend, feed_forward, x, padding_mask, training)

        if cache is None:
            return self._run(run, inputs, neighbors, training=training)
        x = run(inputs, neighbors)
        return x, next_cache

    def init_cache(self, batch_size, max_length=None, dtype=None):
        """That of the attention."""
        return self.attention.init_cache(batch_size, max_length, dtype)

    def compute_output_spec(self, inputs, *args, cache=None, **options):
        return self._output_spec(inputs.shape, cache)
