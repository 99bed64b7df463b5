"""The decoder block of Deformable DETR and its successors."""

from __future__ import annotations

from collections.abc import Sequence

from keras import ops

from keras_transformer.blocks.decoders.query_decoder_block import QueryDecoderBlock
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Shape, Tensor


@serializable
class DeformableDecoderBlock(QueryDecoderBlock):
    """Decoder block of detectors whose queries have boxes: queries attend to one another and to points of feature maps.

    Self-attention, deformable cross-attention and feed-forward are each inside a residual scheme. The position vectors of
    the queries are added to what attention makes queries and keys of, never to its values.

    Args:
        mixer, feedforward, residual, norm, dropout, seed, cross_residual, recompute: as in `QueryDecoderBlock`.
        cross_attention: `MultiScaleDeformableAttention`, another layer with its call, or its config.

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

    def build(  # type: ignore[override]
        self, inputs_shape: Shape, memory_shape: Sequence[Shape], boxes_shape: Shape | None = None
    ) -> None:
        self._build_sublayers(inputs_shape, memory_shape, boxes_shape)

    def call(  # type: ignore[override]
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

            return self._apply_sublayers(x, mix, attend, training)

        positions = ops.zeros_like(inputs) if positions is None else ops.cast(positions, inputs.dtype)
        return self._run(run, inputs, boxes, positions, *memory, training=training)
