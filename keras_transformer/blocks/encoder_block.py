"""The encoder block."""

import keras

from keras_transformer.attention.masks import implicit_mask
from keras_transformer.blocks.block import Block, serialize_template, template
from keras_transformer.blocks.residual.residual import Residual
from keras_transformer.blocks.residual.schemes import RESIDUALS
from keras_transformer.utils.serialization import resolve, serializable, serialize


@serializable
class EncoderBlock(Block):
    """A residual scheme around a mixer, and one around a feed-forward.

    With `residual="pre"`: `x = x + mixer(norm(x))`, then `x = x + feedforward(norm(x))`.

    Args:
        mixer: `MultiHeadAttention`, or another layer of its contract, or its config.
        feedforward: a layer `(B, T, D)` to `(B, T, D)`, or its config.
        residual: a name in `RESIDUALS`, or an instance of `Residual`, of which the block makes copies. Default "pre".
        norm: "layer_norm", "rms_norm", "batch_norm", or a norm layer to copy; for a residual given by name.
        dropout: float in [0, 1). Of what mixer and feed-forward give, before it is added.
        seed: int or None. Of the dropout.
        mixer_residual: as `residual`, around the mixer alone; None for the same.
        recompute: bool. Whether, in training, the block keeps only its inputs for the backward pass, and computes the rest
            again there: less memory, a third more time. `training.recompute_blocks` sets it in a whole model.

    Call arguments:
        inputs: float `(B, T, D)`.
        padding_mask: boolean `(B, T)`, True = a real token; None for the mask that Keras carries, if any.
        attention_mask: boolean `(T, T)`, `(B, T, T)` or `(B, N, T, T)`.
        positions: int `(T,)` or `(B, T)`; see `MultiHeadAttention`.
        global_mask: boolean `(B, T)`, for a mixer that takes one: see `LongformerAttention`.
        segment_ids: int `(B, T)`, for a mixer that takes them: see `TwoStreamAttention`.

    Returns:
        `(B, T, D)`.

    Raises:
        ValueError: unknown name of a residual scheme or a norm.

    Example:

    >>> import numpy as np
    >>> from keras_transformer.attention import MultiHeadAttention
    >>> from keras_transformer.feedforward import DenseFeedForward
    >>> block = EncoderBlock(MultiHeadAttention(2, 4), DenseFeedForward(16), residual="pre")
    >>> tuple(block(np.ones((1, 3, 8))).shape)
    (1, 3, 8)

    Reference: Vaswani et al., arXiv 1706.03762, section 3.1.
    """

    def __init__(
        self,
        mixer,
        feedforward,
        residual="pre",
        norm="layer_norm",
        dropout=0.0,
        seed=None,
        mixer_residual=None,
        recompute=False,
        **kwargs,
    ):
        super().__init__(residual, norm, dropout, seed, recompute, **kwargs)
        self._mixer_template = None if mixer_residual is None else template(mixer_residual, RESIDUALS, Residual)
        self.mixer = resolve(mixer, {}, keras.layers.Layer, argument="mixer")
        self.feedforward = resolve(feedforward, {}, keras.layers.Layer, argument="feedforward")
        self.mixer_residual = self._make_residual("mixer_residual", self._mixer_template)
        self.feedforward_residual = self._make_residual("feedforward_residual")

    def build(self, inputs_shape):
        shape = self._build_streams(self.mixer_residual, inputs_shape)
        self._build_around(self.mixer_residual, self.mixer, shape, shape)
        self._build_around(self.feedforward_residual, self.feedforward, shape)

    def call(
        self,
        inputs,
        padding_mask=None,
        attention_mask=None,
        positions=None,
        global_mask=None,
        segment_ids=None,
        training=None,
    ):
        padding_mask = implicit_mask(inputs) if padding_mask is None else padding_mask
        own = {"global_mask": global_mask, "segment_ids": segment_ids}
        own = {name: value for name, value in own.items() if value is not None}

        def mix(x):
            return self.mixer(
                x,
                x,
                value_mask=padding_mask,
                attention_mask=attention_mask,
                positions=positions,
                training=training,
                **own,
            )

        def feed_forward(x):
            return self._feed(x, padding_mask, training)

        def run(x):
            x = self._around(self.mixer_residual, mix, self._opened(x), padding_mask, training)
            x = self._around(self.feedforward_residual, feed_forward, x, padding_mask, training)
            return self._closed(x, padding_mask, training)

        return self._run(run, inputs, training=training)

    def get_config(self):
        return {
            **super().get_config(),
            "mixer": serialize(self.mixer),
            "feedforward": serialize(self.feedforward),
            "mixer_residual": serialize_template(self._mixer_template),
        }
