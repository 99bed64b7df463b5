"""Base class of blocks that attend to precomputed tensors and have no cache."""

from __future__ import annotations

from typing import Unpack

import keras

from keras_transformer.blocks.block import Block
from keras_transformer.blocks.residual.residual import Residual
from keras_transformer.utils.serialization import resolve, serialize
from keras_transformer.utils.types import Config, LayerLike, LayerOptions


class CrossBlock(Block):
    """Base of blocks of an attention layer, of `attention_type`, and a feed-forward, each inside a residual scheme."""

    attention_type: type[keras.layers.Layer] = keras.layers.Layer

    def __init__(
        self,
        attention: LayerLike,
        feedforward: LayerLike,
        residual: str | Residual = "pre",
        norm: LayerLike = "layer_norm",
        dropout: float = 0.0,
        seed: int | None = None,
        recompute: bool = False,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(residual, norm, dropout, seed, recompute, **kwargs)
        self.attention = resolve(attention, {}, self.attention_type, argument="attention")
        self.feedforward = resolve(feedforward, {}, keras.layers.Layer, argument="feedforward")
        if hasattr(self.feedforward, "init_cache"):
            raise ValueError(f"{type(self.feedforward).__name__} needs a cache of past tokens: this block has none.")
        self.attention_residual = self._make_residual("attention_residual")
        self.feedforward_residual = self._make_residual("feedforward_residual")

    def _build_parts(self, inputs_shape, *attended_shapes):
        shape = self._build_streams(self.attention_residual, inputs_shape)
        self._build_sublayer(self.attention_residual, self.attention, shape, *attended_shapes)
        self._build_sublayer(self.feedforward_residual, self.feedforward, shape)

    def _attend_and_feed_forward(self, attend, feed, x, mask, training):
        """Calls two functions of tokens in sequence, each inside its residual scheme."""
        x = self._apply_residual(self.attention_residual, attend, self._split_streams(x), mask, training)
        x = self._apply_residual(self.feedforward_residual, feed, x, mask, training)
        return self._merge_streams(x, mask, training)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "attention": serialize(self.attention),
            "feedforward": serialize(self.feedforward),
        }
