"""What blocks share that attend to something prepared for them, and keep no tokens of their own."""

import keras

from keras_transformer.blocks.block import Block
from keras_transformer.utils.serialization import resolve, serialize


class CrossBlock(Block):
    """Base of blocks of an attention, of `attention_type`, and a feed-forward, each inside a residual scheme."""

    attention_type = keras.layers.Layer

    def __init__(
        self,
        attention,
        feedforward,
        residual="pre",
        norm="layer_norm",
        dropout=0.0,
        seed=None,
        recompute=False,
        **kwargs,
    ):
        super().__init__(residual, norm, dropout, seed, recompute, **kwargs)
        self.attention = resolve(attention, {}, self.attention_type, argument="attention")
        self.feedforward = resolve(feedforward, {}, keras.layers.Layer, argument="feedforward")
        if hasattr(self.feedforward, "init_cache"):
            raise ValueError(f"{type(self.feedforward).__name__} reads the tokens before: this block keeps none.")
        self.attention_residual = self._make_residual("attention_residual")
        self.feedforward_residual = self._make_residual("feedforward_residual")

    def _build_parts(self, inputs_shape, *attended_shapes):
        shape = self._build_streams(self.attention_residual, inputs_shape)
        self._build_around(self.attention_residual, self.attention, shape, *attended_shapes)
        self._build_around(self.feedforward_residual, self.feedforward, shape)

    def _attend_and_feed(self, attend, feed, x, mask, training):
        """Both functions of tokens, one after the other, each inside its scheme."""
        x = self._around(self.attention_residual, attend, self._opened(x), mask, training)
        x = self._around(self.feedforward_residual, feed, x, mask, training)
        return self._closed(x, mask, training)

    def get_config(self):
        return {
            **super().get_config(),
            "attention": serialize(self.attention),
            "feedforward": serialize(self.feedforward),
        }
