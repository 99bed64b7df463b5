"""The decoder block of Deformable DETR and its successors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_transformer.blocks.block import Block, serialize_template, template
from keras_transformer.blocks.residual.residual import Residual
from keras_transformer.blocks.residual.schemes import RESIDUALS
from keras_transformer.utils.serialization import resolve, serializable, serialize
from keras_transformer.utils.types import Config, LayerLike, Shape, Tensor


@serializable
class DeformableDecoderBlock(Block):
    """Decoder block of detectors whose queries have boxes: queries attend to one another and to points of feature maps.

    Self-attention, deformable cross-attention and feed-forward are each inside a residual scheme. The position vectors of
    the queries are added to what attention makes queries and keys of, never to its values.

    Args:
        mixer: `PositionedAttention`, another mixer that takes such positions, or its config.
        cross_attention: `MultiScaleDeformableAttention`, another layer with its call, or its config.
        feedforward: a layer `(B, Q, D)` to `(B, Q, D)`, or its config.
        residual: a name in `RESIDUALS`, or a `Residual` instance to copy. Default "post".
        norm: a name in `NORMS`, or a norm layer to copy. Used if `residual` is a name.
        dropout: float in [0, 1). Dropout rate of the output of each sublayer. Default 0.
        seed: int or None. Seed of the dropout.
        cross_residual: residual scheme of the cross-attention, if it differs from `residual`. Default None.
        recompute: bool. Whether training keeps only the inputs of the block: see `EncoderBlock`. Default False.

    Call arguments:
        inputs: float `(B, Q, D)`.
        memory: list of feature maps, float `(B, rows, columns, D)`.
        boxes: float `(B, Q, 4)`: center, width and height, as shares of the image.
        positions: float `(B, Q, D)`: of the queries; None for none.

    Returns:
        `(B, Q, D)`.

    Raises:
        ValueError: unknown name of a residual scheme or a norm.

    Example:

    >>> import numpy as np
    >>> from keras_transformer.attention import MultiScaleDeformableAttention, PositionedAttention
    >>> from keras_transformer.feedforward import DenseFeedForward
    >>> cross = MultiScaleDeformableAttention(num_heads=2, num_levels=1)
    >>> block = DeformableDecoderBlock(PositionedAttention(2, 4), cross, DenseFeedForward(16))
    >>> memory = [np.ones((1, 4, 6, 8), "float32")]
    >>> tuple(block(np.ones((1, 3, 8), "float32"), memory, np.full((1, 3, 4), 0.5, "float32")).shape)
    (1, 3, 8)

    Reference: Zhu et al., Deformable DETR, arXiv 2010.04159, section 4.2.
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
        **kwargs: Any,
    ) -> None:
        super().__init__(residual, norm, dropout, seed, recompute, **kwargs)
        self._cross_template = None if cross_residual is None else template(cross_residual, RESIDUALS, Residual)
        self.mixer = resolve(mixer, {}, keras.layers.Layer, argument="mixer")
        self.cross_attention = resolve(cross_attention, {}, keras.layers.Layer, argument="cross_attention")
        self.feedforward = resolve(feedforward, {}, keras.layers.Layer, argument="feedforward")
        self.mixer_residual = self._make_residual("mixer_residual")
        self.cross_attention_residual = self._make_residual("cross_attention_residual", self._cross_template)
        self.feedforward_residual = self._make_residual("feedforward_residual")

    def build(self, inputs_shape: Shape, memory_shape: Sequence[Shape], boxes_shape: Shape | None = None) -> None:
        shape = self._build_streams(self.mixer_residual, inputs_shape)
        self._build_sublayer(self.mixer_residual, self.mixer, shape, shape)
        self._build_sublayer(self.cross_attention_residual, self.cross_attention, shape, memory_shape, boxes_shape)
        self._build_sublayer(self.feedforward_residual, self.feedforward, shape)

    def call(
        self,
        inputs: Tensor,
        memory: Sequence[Tensor],
        boxes: Tensor,
        positions: Tensor | None = None,
        training: bool | None = None,
    ) -> Tensor:
        def run(x, boxes, positions, *memory):
            def mix(x):
                return self.mixer(x, x, positions=positions, training=training)

            def attend(x):
                return self.cross_attention(x + positions, list(memory), boxes)

            def feed_forward(x):
                return self._feed_forward(x, None, training)

            x = self._apply_residual(self.mixer_residual, mix, self._split_streams(x), None, training)
            x = self._apply_residual(self.cross_attention_residual, attend, x, None, training)
            x = self._apply_residual(self.feedforward_residual, feed_forward, x, None, training)
            return self._merge_streams(x, None, training)

        positions = ops.zeros_like(inputs) if positions is None else ops.cast(positions, inputs.dtype)
        return self._run(run, inputs, boxes, positions, *memory, training=training)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "mixer": serialize(self.mixer),
            "cross_attention": serialize(self.cross_attention),
            "feedforward": serialize(self.feedforward),
            "cross_residual": serialize_template(self._cross_template),
        }
