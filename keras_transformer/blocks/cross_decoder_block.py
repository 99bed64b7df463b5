"""The block of a cross-decoder."""

from keras_transformer.attention.masks import implicit_mask
from keras_transformer.blocks.cross_block import CrossBlock
from keras_transformer.utils.serialization import serializable


@serializable
class CrossDecoderBlock(CrossBlock):
    """Causal attention to shared keys and values, and a feed-forward, each inside a residual scheme.

    It has no cache: the past is in the keys and values, and a token is computed without the tokens before it.

    Args:
        attention: `CrossDecoderAttention` or its config.
        feedforward: a layer `(B, T, D)` to `(B, T, D)` that looks at each token by itself, or its config.
        residual: a name in `RESIDUALS`, or an instance of `Residual`, of which the block makes copies. Default "pre".
        norm: "layer_norm", "rms_norm", "batch_norm", or a norm layer to copy; for a residual given by name.
        dropout: float in [0, 1). Of what each sublayer gives, before it is added.
        seed: int or None. Of the dropout.
        recompute: bool. Whether, in training, the block keeps only its inputs for the backward pass, and computes the rest
            again there: less memory, a third more time. `training.recompute_blocks` sets it in a whole model.

    Call arguments:
        inputs: float `(B, T, D)`.
        key: float `(B, K, S, H)`, as `SharedKeyValue` gives it.
        value: float `(B, K, S, H_value)`.
        padding_mask: boolean `(B, S)`, True = a real token; None for the mask that Keras carries, if any.
        positions: int `(T,)` or `(B, T)`: see `CrossDecoderAttention`.

    Returns:
        `(B, T, D)`.

    Raises:
        ValueError: unknown names; a feed-forward with a cache.

    Example:

    >>> import numpy as np
    >>> from keras_transformer.attention import CrossDecoderAttention, SharedKeyValue
    >>> from keras_transformer.feedforward import DenseFeedForward
    >>> block, x = CrossDecoderBlock(CrossDecoderAttention(2, 4), DenseFeedForward(16)), np.ones((1, 3, 8))
    >>> tuple(block(x, *SharedKeyValue(2, 4)(x)).shape)
    (1, 3, 8)

    Reference: Sun et al., You Only Cache Once, arXiv 2405.05254, section 2 (the cross-decoder).
    """

    def build(self, inputs_shape, key_shape, value_shape):
        self._build_parts(inputs_shape, key_shape, value_shape)

    def call(self, inputs, key, value, padding_mask=None, positions=None, training=None):
        padding_mask = implicit_mask(inputs) if padding_mask is None else padding_mask

        def feed_forward(x):
            return self._feed(x, None, training)

        def run(x, key, value):
            def attend(x):
                return self.attention(x, key, value, padding_mask=padding_mask, positions=positions, training=training)

            return self._attend_and_feed(attend, feed_forward, x, padding_mask, training)

        return self._run(run, inputs, key, value, training=training)
