"""The block that encodes what was retrieved for a chunk, in the light of the chunk."""

import keras
import numpy as np
from keras import ops

from keras_transformer.attention.mechanism import check_cross_attention
from keras_transformer.blocks.block import Block
from keras_transformer.utils.serialization import resolve, serializable, serialize


@serializable
class NeighborBlock(Block):
    """Two-sided attention within each neighbor, cross-attention to the chunk if asked, and a feed-forward.

    With `residual="pre"`: `x = x + mixer(norm(x))`, `x = x + cross_attention(norm(x), chunk)`, and
    `x = x + feedforward(norm(x))`.
    Neighbors of one chunk do not see each other.

    Args:
        mixer: `MultiHeadAttention`, or another two-sided layer of its contract, or its config.
        feedforward: a layer `(B, T, D)` to `(B, T, D)`, or its config.
        cross_attention: `MultiHeadAttention` or its config; None for a block that does not look at the chunk.
        residual: a name in `RESIDUALS`, or an instance of `Residual`, of which the block makes copies. Default "pre".
        norm: "layer_norm", "rms_norm", "batch_norm", or a norm layer to copy; for a residual given by name.
        dropout: float in [0, 1). Of what each sublayer gives, before it is added.
        seed: int or None. Of the dropout.
        recompute: bool. Whether, in training, the block keeps only its inputs for the backward pass, and computes the rest
            again there: less memory, a third more time. `training.recompute_blocks` sets it in a whole model.

    Call arguments:
        inputs: float `(G, k · r, E)`: k neighbors of r tokens for each of G chunks.
        chunk: float `(G, m, D)`: what the decoder makes of the chunks.
        neighbor_mask: boolean `(G, k, r)`, True = a real token.

    Returns:
        `(G, k · r, E)`.

    Raises:
        ValueError: unknown names; a `cross_attention` that serves self-attention alone.

    Example:

    >>> import numpy as np
    >>> from keras_transformer.attention import MultiHeadAttention
    >>> from keras_transformer.feedforward import DenseFeedForward
    >>> block = NeighborBlock(MultiHeadAttention(2, 4), DenseFeedForward(16), MultiHeadAttention(2, 4))
    >>> tuple(block(np.ones((5, 6, 8)), np.ones((5, 4, 12)), np.ones((5, 2, 3), bool)).shape)
    (5, 6, 8)

    Reference: Borgeaud et al., RETRO, arXiv 2112.04426, section 2.4 and algorithm 1.
    """

    def __init__(
        self,
        mixer,
        feedforward,
        cross_attention=None,
        residual="pre",
        norm="layer_norm",
        dropout=0.0,
        seed=None,
        recompute=False,
        **kwargs,
    ):
        super().__init__(residual, norm, dropout, seed, recompute, **kwargs)
        self.mixer = resolve(mixer, {}, keras.layers.Layer, argument="mixer")
        self.feedforward = resolve(feedforward, {}, keras.layers.Layer, argument="feedforward")
        self.cross_attention = resolve(cross_attention, {}, keras.layers.Layer, argument="cross_attention")
        check_cross_attention(self.cross_attention)
        self.mixer_residual = self._make_residual("mixer_residual")
        self.cross_attention_residual = cross_attention and self._make_residual("cross_attention_residual")
        self.feedforward_residual = self._make_residual("feedforward_residual")

    def build(self, inputs_shape, chunk_shape, neighbor_mask_shape):
        shape = self._build_streams(self.mixer_residual, inputs_shape)
        self._build_around(self.mixer_residual, self.mixer, shape, shape)
        if self.cross_attention is not None:
            self._build_around(self.cross_attention_residual, self.cross_attention, shape, chunk_shape)
        self._build_around(self.feedforward_residual, self.feedforward, shape)

    def call(self, inputs, chunk, neighbor_mask, training=None):
        count, length = neighbor_mask.shape[1:]
        alone = ops.reshape(neighbor_mask, (-1, length))
        mask = ops.reshape(neighbor_mask, (-1, count * length))
        places = np.tile(np.arange(length, dtype="int32"), count)

        def mix(x):
            x = ops.reshape(x, (-1, length, x.shape[2]))
            x = self.mixer(x, x, value_mask=alone, training=training)
            return ops.reshape(x, (-1, count * length, x.shape[2]))

        def feed_forward(x):
            return self._feed(x, mask, training)

        def run(x, chunk):
            def attend_chunk(x):
                positions = (places, ops.arange(ops.shape(chunk)[1], dtype="int32"))
                return self.cross_attention(x, chunk, positions=positions, training=training)

            x = self._around(self.mixer_residual, mix, self._opened(x), mask, training)
            if self.cross_attention is not None:
                x = self._around(self.cross_attention_residual, attend_chunk, x, mask, training)
            x = self._around(self.feedforward_residual, feed_forward, x, mask, training)
            return self._closed(x, mask, training)

        return self._run(run, inputs, chunk, training=training)

    def get_config(self):
        return {
            **super().get_config(),
            "mixer": serialize(self.mixer),
            "feedforward": serialize(self.feedforward),
            "cross_attention": serialize(self.cross_attention),
        }
