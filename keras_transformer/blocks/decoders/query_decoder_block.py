"""The decoder block of DETR."""

from __future__ import annotations

from collections.abc import Callable
from typing import Unpack

import keras
from keras import ops

from keras_transformer.blocks.block import Block, serialize_template, template
from keras_transformer.blocks.residual import RESIDUALS
from keras_transformer.blocks.residual.residual import Residual
from keras_transformer.utils.serialization import resolve, serializable, serialize
from keras_transformer.utils.types import Config, LayerLike, LayerOptions, Shape, Tensor


@serializable
class QueryDecoderBlock(Block):
    """Decoder block of DETR: object queries attend to one another and to the features of an image, all at once.

    Self-attention, cross-attention and feed-forward are each inside a residual scheme. Position vectors are added to what
    the queries and keys of attention are made of, never to its values: those of the object queries, and those of the
    features.

    Args:
        mixer: `PositionedAttention`, another mixer that takes such positions, or its config.
        cross_attention: `MultiHeadAttention`, or its config.
        feedforward: a layer `(B, Q, D)` to `(B, Q, D)`, or its config.
        residual: a name in `RESIDUALS`, or a `Residual` instance to copy. Default "post".
        norm: a name in `NORMS`, or a norm layer to copy. Used if `residual` is a name.
        dropout: float in [0, 1). Dropout rate of the output of each sublayer. Default 0.
        seed: int or None. Seed of the dropout.
        cross_residual: residual scheme of the cross-attention, if it differs from `residual`. Default None.
        recompute: bool. Whether training keeps only the inputs of the block: see `EncoderBlock`. Default False.

    Call arguments:
        inputs: float `(B, Q, D)`.
        memory: float `(B, T, D)`: the features.
        positions: float `(B, Q, D)`, or that can be broadcast to it: of the queries; None for none.
        memory_positions: float `(B, T, D)`, or that can be broadcast to it: of the features; None for none.
        memory_mask: boolean `(B, T)`, True = a real feature; None: all are.

    Returns:
        `(B, Q, D)`.

    Raises:
        ValueError: unknown name of a residual scheme or a norm.

    Example:

    >>> import numpy as np
    >>> from keras_transformer.attention import MultiHeadAttention, PositionedAttention
    >>> from keras_transformer.feedforward import DenseFeedForward
    >>> block = QueryDecoderBlock(PositionedAttention(2, 4), MultiHeadAttention(2, 4), DenseFeedForward(16))
    >>> tuple(block(np.ones((1, 3, 8)), np.ones((1, 10, 8))).shape)
    (1, 3, 8)

    Reference: Carion et al., DETR, arXiv 2005.12872, section 3.2 and appendix A.3.
    """

    def __init__(
        self,
        mixer: LayerLike,
        cross_attention: LayerLike,
        feedforward: LayerLike,
        residual: str | Residual = "post",
        norm: LayerLike = "layer_norm",
        dropout: float = 0.0,
        seed: int | None = None,
        cross_residual: str | Residual | None = None,
        recompute: bool = False,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(residual, norm, dropout, seed, recompute, **kwargs)
        self._cross_template = None if cross_residual is None else template(cross_residual, RESIDUALS, Residual)
        self.mixer = resolve(mixer, {}, keras.layers.Layer, argument="mixer")
        self.cross_attention = resolve(cross_attention, {}, keras.layers.Layer, argument="cross_attention")
        self.feedforward = resolve(feedforward, {}, keras.layers.Layer, argument="feedforward")
        self.mixer_residual = self._make_residual("mixer_residual")
        self.cross_attention_residual = self._make_residual("cross_attention_residual", self._cross_template)
        self.feedforward_residual = self._make_residual("feedforward_residual")

    def build(self, inputs_shape: Shape, memory_shape: Shape) -> None:
        self._build_sublayers(inputs_shape, memory_shape)

    def _build_sublayers(self, inputs_shape: Shape, *cross_shapes: object) -> None:
        """Builds all sublayers; `cross_shapes` are those of the further arguments of the cross-attention."""
        shape = self._build_streams(self.mixer_residual, inputs_shape)
        self._build_sublayer(self.mixer_residual, self.mixer, shape, shape)
        self._build_sublayer(self.cross_attention_residual, self.cross_attention, shape, *cross_shapes)
        self._build_sublayer(self.feedforward_residual, self.feedforward, shape)

    def call(
        self,
        inputs: Tensor,
        memory: Tensor,
        positions: Tensor | None = None,
        memory_positions: Tensor | None = None,
        memory_mask: Tensor | None = None,
        training: bool | None = None,
    ) -> Tensor:
        def mix(x):
            return self.mixer(x, x, positions=positions, training=training)

        def run(x, memory):
            def attend(x):
                query, key = _placed(x, positions), _placed(memory, memory_positions)
                return self.cross_attention(query, memory, key, value_mask=memory_mask, training=training)

            return self._apply_sublayers(x, mix, attend, training)

        return self._run(run, inputs, memory, training=training)

    def _apply_sublayers(
        self, x: Tensor, mix: Callable[[Tensor], Tensor], attend: Callable[[Tensor], Tensor], training: bool | None
    ) -> Tensor:
        """The three sublayers, of which `mix` and `attend` are self-attention and cross-attention."""

        def feed_forward(x):
            return self._feed_forward(x, None, training)

        x = self._apply_residual(self.mixer_residual, mix, self._split_streams(x), None, training)
        x = self._apply_residual(self.cross_attention_residual, attend, x, None, training)
        x = self._apply_residual(self.feedforward_residual, feed_forward, x, None, training)
        return self._merge_streams(x, None, training)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "mixer": serialize(self.mixer),
            "cross_attention": serialize(self.cross_attention),
            "feedforward": serialize(self.feedforward),
            "cross_residual": serialize_template(self._cross_template),
        }


def _placed(x, positions):
    return x if positions is None else x + ops.cast(positions, x.dtype)
