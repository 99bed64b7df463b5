"""The block of the cross-decoder of YOCO."""

from keras_transformer.attention.masks import implicit_mask
from keras_transformer.blocks.decoders.cross_block import CrossBlock
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Shape, Tensor


@serializable
class CrossDecoderBlock(CrossBlock):
    """Causal attention to shared keys and values, then a feed-forward, each inside a residual scheme.

    The block has no cache: all it needs of past tokens is in the shared keys and values.

    Args:
        attention: `CrossDecoderAttention` or its config.
        feedforward: a layer `(B, T, D)` to `(B, T, D)` on single tokens, or its config.
        residual: a name in `RESIDUALS`, or a `Residual` instance to copy. Default "pre".
        norm: a name in `NORMS`, or a norm layer to copy. Used if `residual` is a name.
        dropout: float in [0, 1). Dropout rate of the output of each sublayer. Default 0.
        seed: int or None. Seed of the dropout.
        recompute: bool. Whether training keeps only the inputs of the block and recomputes the activations in the backward
            pass: less memory, a third more time. `training.recompute_blocks` sets it in a whole model. Default False.

    Call arguments:
        inputs: float `(B, T, D)`.
        key: float `(B, K, S, H)`, from `SharedKeyValue`.
        value: float `(B, K, S, H_value)`.
        padding_mask: boolean `(B, S)`, True = a real token. None: the implicit Keras mask, if any.
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

    def build(self, inputs_shape: Shape, key_shape: Shape, value_shape: Shape) -> None:
        self._build_parts(inputs_shape, key_shape, value_shape)

    def call(
        self,
        inputs: Tensor,
        key: Tensor,
        value: Tensor,
        padding_mask: Tensor | None = None,
        positions: Tensor | None = None,
        training: bool | None = None,
    ) -> Tensor:
        padding_mask = implicit_mask(inputs) if padding_mask is None else padding_mask

        def feed_forward(x):
            return self._feed_forward(x, None, training)

        def run(x, key, value):
            def attend(x):
                return self.attention(x, key, value, padding_mask=padding_mask, positions=positions, training=training)

            return self._attend_and_feed_forward(attend, feed_forward, x, padding_mask, training)

        return self._run(run, inputs, key, value, training=training)
