"""The two-way block of SAM's mask decoder."""

from __future__ import annotations

from typing import Unpack

import keras
from keras import ops

from keras_transformer.blocks.block import serialize_template, template
from keras_transformer.layers.norms import NORMS
from keras_transformer.utils.serialization import build_once, clone, resolve, serializable, serialize
from keras_transformer.utils.types import Config, LayerLike, LayerOptions, Shape, Tensor


@serializable
class TwoWayBlock(keras.layers.Layer):
    """Two-way block of SAM: the tokens of a prompt attend to one another and to the image, then the image to the tokens.

        x = norm(x + self_attention(x + p, x + p, x))
        x = norm(x + cross_attention(x + p, z + q, z))
        x = norm(x + feedforward(x))
        z = norm(z + image_attention(z + q, x + p, x))

    for tokens x with positions p, and an image z with positions q.

    Args:
        self_attention: `MultiHeadAttention`, or its config: of the tokens.
        cross_attention: likewise: from tokens to the image.
        feedforward: a layer `(B, T, D)` to `(B, T, D)`, or its config: of the tokens.
        image_attention: `MultiHeadAttention`, or its config: from the image to the tokens.
        norm: a name in `NORMS`, or a norm layer to copy.
        is_first: bool. Whether self-attention has neither positions nor a residual connection, as in the first block of a
            stack, whose tokens are their own positions: `x = norm(self_attention(x, x, x))`. Default False.

    Call arguments:
        inputs: float `(B, T, D)`: the tokens.
        image: float `(B, S, D)`.
        positions: float `(B, T, D)`: p.
        image_positions: float `(1, S, D)` or `(B, S, D)`: q.
        mask: boolean `(B, T)`, True = a real token, or None.

    Returns:
        `(B, T, D)` and `(B, S, D)`: the tokens and the image.

    Raises:
        ValueError: unknown name of a norm.

    Export: all three formats.

    Example:

    >>> import numpy as np
    >>> from keras_transformer.attention import MultiHeadAttention
    >>> from keras_transformer.feedforward import DenseFeedForward
    >>> attention = [MultiHeadAttention(2, width) for width in (4, 2, 2)]
    >>> block = TwoWayBlock(*attention[:2], DenseFeedForward(16), attention[2])
    >>> x, z = np.ones((1, 3, 8)), np.ones((1, 10, 8))
    >>> [tuple(output.shape) for output in block(x, z, x, z)]
    [(1, 3, 8), (1, 10, 8)]

    Reference: Kirillov et al., Segment Anything, arXiv 2304.02643, appendix A and figure 14.
    """

    def __init__(
        self,
        self_attention: LayerLike,
        cross_attention: LayerLike,
        feedforward: LayerLike,
        image_attention: LayerLike,
        norm: LayerLike = "layer_norm",
        is_first: bool = False,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.self_attention = resolve(self_attention, {}, keras.layers.Layer, argument="self_attention")
        self.cross_attention = resolve(cross_attention, {}, keras.layers.Layer, argument="cross_attention")
        self.feedforward = resolve(feedforward, {}, keras.layers.Layer, argument="feedforward")
        self.image_attention = resolve(image_attention, {}, keras.layers.Layer, argument="image_attention")
        self.norm = template(norm, NORMS, keras.layers.Layer)
        self.is_first = is_first
        norm = resolve(self.norm, NORMS, keras.layers.Layer, argument="norm")
        self._norms = {
            part: clone(norm, name=f"{part}_norm", dtype=self.dtype_policy)
            for part in ("self_attention", "cross_attention", "feedforward", "image_attention")
        }

    def build(
        self,
        inputs_shape: Shape,
        image_shape: Shape,
        positions_shape: Shape | None = None,
        image_positions_shape: Shape | None = None,
        mask_shape: Shape | None = None,
    ) -> None:
        build_once(self.self_attention, inputs_shape, inputs_shape)
        build_once(self.cross_attention, inputs_shape, image_shape)
        build_once(self.feedforward, inputs_shape)
        build_once(self.image_attention, image_shape, inputs_shape)
        for part, norm in self._norms.items():
            norm.build(image_shape if part == "image_attention" else inputs_shape)

    def call(
        self,
        inputs: Tensor,
        image: Tensor,
        positions: Tensor,
        image_positions: Tensor,
        mask: Tensor | None = None,
        training: bool | None = None,
    ) -> tuple[Tensor, Tensor]:
        positions, image_positions = (ops.cast(each, inputs.dtype) for each in (positions, image_positions))
        options, x = {"value_mask": mask, "training": training}, inputs
        if self.is_first:
            x = self.self_attention(x, x, **options)
        else:
            placed = x + positions
            x = x + self.self_attention(placed, x, placed, **options)
        x = self._norms["self_attention"](x)
        placed_image = image + image_positions
        x = x + self.cross_attention(x + positions, image, placed_image, training=training)
        x = self._norms["cross_attention"](x)
        x = self._norms["feedforward"](x + self.feedforward(x, training=training))
        image = image + self.image_attention(placed_image, x, x + positions, **options)
        return x, self._norms["image_attention"](image)

    def compute_output_shape(self, inputs_shape: Shape, image_shape: Shape, *args: object) -> tuple[Shape, Shape]:
        return inputs_shape, image_shape

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "self_attention": serialize(self.self_attention),
            "cross_attention": serialize(self.cross_attention),
            "feedforward": serialize(self.feedforward),
            "image_attention": serialize(self.image_attention),
            "norm": serialize_template(self.norm),
            "is_first": self.is_first,
        }
