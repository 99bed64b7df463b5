"""The block of RETRO's neighbor encoder."""

from __future__ import annotations

from typing import Unpack

import keras
import numpy as np
from keras import ops

from keras_transformer.attention.mechanism import check_cross_attention
from keras_transformer.blocks.block import Block
from keras_transformer.blocks.residual.residual import Residual
from keras_transformer.utils.serialization import resolve, serializable, serialize
from keras_transformer.utils.types import Config, LayerLike, LayerOptions, Shape, Tensor


@serializable
class NeighborBlock(Block):
    """Bidirectional attention within each neighbor, optional cross-attention to the chunk, and a feed-forward.

    With `residual="pre"`: `x = x + mixer(norm(x))`, `x = x + cross_attention(norm(x), chunk)`, and
    `x = x + feedforward(norm(x))`.
    Neighbors of one chunk do not attend to each other.

    Args:
        mixer: `MultiHeadAttention`, another bidirectional `TokenMixer`, or its config.
        feedforward: a layer `(B, T, D)` to `(B, T, D)`, or its config.
        cross_attention: `MultiHeadAttention` or its config; None for no attention to the chunk.
        residual: a name in `RESIDUALS`, or a `Residual` instance to copy. Default "pre".
        norm: a name in `NORMS`, or a norm layer to copy. Used if `residual` is a name.
        dropout: float in [0, 1). Dropout rate of the output of each sublayer. Default 0.
        seed: int or None. Seed of the dropout.
        recompute: bool. Whether training keeps only the inputs of the block and recomputes the activations in the backward
            pass: less memory, a third more time. `training.recompute_blocks` sets it in a whole model. Default False.

    Call arguments:
        inputs: float `(G, k · r, E)`: k neighbors of r tokens for each of G chunks.
        chunk: float `(G, m, D)`: the decoder's hidden states of the chunks.
        neighbor_mask: boolean `(G, k, r)`, True = a real token.

    Returns:
        `(G, k · r, E)`.

    Raises:
        ValueError: unknown names; a `cross_attention` that supports self-attention only.

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
        mixer: LayerLike,
        feedforward: LayerLike,
        cross_attention: LayerLike | None = None,
        residual: str | Residual = "pre",
        norm: LayerLike = "layer_norm",
        dropout: float = 0.0,
        seed: int | None = None,
        recompute: bool = False,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(residual, norm, dropout, seed, recompute, **kwargs)
        self.mixer = resolve(mixer, {}, keras.layers.Layer, argument="mixer")
        self.feedforward = resolve(feedforward, {}, keras.layers.Layer, argument="feedforward")
        self.cross_attention = resolve(cross_attention, {}, keras.layers.Layer, argument="cross_attention")
        check_cross_attention(self.cross_attention)
        self.mixer_residual = self._make_residual("mixer_residual")
        self.cross_attention_residual = cross_attention and self._make_residual("cross_attention_residual")
        self.feedforward_residual = self._make_residual("feedforward_residual")

    def build(self, inputs_shape: Shape, chunk_shape: Shape, neighbor_mask_shape: Shape) -> None:
        shape = self._build_streams(self.mixer_residual, inputs_shape)
        self._build_sublayer(self.mixer_residual, self.mixer, shape, shape)
        if self.cross_attention is not None:
            self._build_sublayer(self.cross_attention_residual, self.cross_attention, shape, chunk_shape)
        self._build_sublayer(self.feedforward_residual, self.feedforward, shape)

    def call(self, inputs: Tensor, chunk: Tensor, neighbor_mask: Tensor, training: bool | None = None) -> Tensor:
        count, length = neighbor_mask.shape[1:]
        alone = ops.reshape(neighbor_mask, (-1, length))
        mask = ops.reshape(neighbor_mask, (-1, count * length))
        query_positions = np.tile(np.arange(length, dtype="int32"), count)

        def mix(x):
            x = ops.reshape(x, (-1, length, x.shape[2]))
            x = self.mixer(x, x, value_mask=alone, training=training)
            return ops.reshape(x, (-1, count * length, x.shape[2]))

        def feed_forward(x):
            return self._feed_forward(x, mask, training)

        def run(x, chunk):
            def attend_chunk(x):
                positions = (query_positions, ops.arange(ops.shape(chunk)[1], dtype="int32"))
                return self.cross_attention(x, chunk, positions=positions, training=training)

            x = self._apply_residual(self.mixer_residual, mix, self._split_streams(x), mask, training)
            if self.cross_attention is not None:
                x = self._apply_residual(self.cross_attention_residual, attend_chunk, x, mask, training)
            x = self._apply_residual(self.feedforward_residual, feed_forward, x, mask, training)
            return self._merge_streams(x, mask, training)

        return self._run(run, inputs, chunk, training=training)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "mixer": serialize(self.mixer),
            "feedforward": serialize(self.feedforward),
            "cross_attention": serialize(self.cross_attention),
        }
