"""What detectors that refine boxes block by block say of their queries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
from keras import ops

from keras_transformer.attention import PositionedAttention
from keras_transformer.blocks import DeformableDecoderBlock
from keras_transformer.feedforward import DenseFeedForward
from keras_transformer.models.building.convolution import convolution
from keras_transformer.models.building.feature_maps import feature_maps
from keras_transformer.utils.serialization import clone
from keras_transformer.utils.types import Activation, Config, Tensor
from keras_transformer.vision import QuerySelection

# Layers with these names, and the number of the block.
REFINED = "refined_boxes_"
BLOCK = "decoder_block_"
# The layer of the boxes that are refined, if it has them from the first block.
FIRST = "first_boxes"


class Stage(NamedTuple):
    """The queries after a block of the decoder.

    Attributes:
        tokens: symbolic `(B, Q, D)`.
        boxes: symbolic `(B, Q, 4)`.
        quality: symbolic `(B, Q, 1)`, which is added to the logits of the classes; None for none.
    """

    tokens: Tensor
    boxes: Tensor
    quality: Tensor | None = None


def refined_stages(backbone: keras.Model) -> list[Stage]:
    """The stages of a backbone that refines boxes, such as `models.RTDETR`, the first first; none for others."""
    layers = {layer.name: layer for layer in backbone.layers}
    stages: list[Stage] = []
    while f"{REFINED}{len(stages)}" in layers:
        index = len(stages)
        refined = layers[f"{REFINED}{index}"].output
        boxes, quality = (refined[0], refined[-1]) if isinstance(refined, (list, tuple)) else (refined, None)
        stages.append(Stage(layers[f"{BLOCK}{index}"].output, boxes, quality))
    return stages


def first_boxes(backbone: keras.Model) -> keras.KerasTensor | None:
    """The boxes that the first block gives and all blocks refine, `(B, Q, 4)`; None where each refines those before."""
    return next((layer.output for layer in backbone.layers if layer.name == FIRST), None)


def query_selection(model: keras.Model) -> QuerySelection | None:
    """The layer that selects the queries of a detector; None for one with learned queries."""
    return next((layer for layer in model.layers if isinstance(layer, QuerySelection)), None)


def last_maps(backbone: keras.Model) -> list[Tensor]:
    """The last three feature maps of a backbone.

    Raises:
        ValueError: it has fewer, or one has not half the rows and columns of the one before, rounded up.
    """
    maps = feature_maps(backbone)[-3:]
    sizes = [tuple(each.shape[1:3]) for each in maps]
    halves = [tuple(None if side is None else (side + 1) // 2 for side in size) for size in sizes[:-1]]
    if len(maps) < 3 or halves != sizes[1:]:
        raise ValueError(
            f"{backbone.name!r} must have three feature maps or more, of which the last two have half the rows and columns "
            f"of the one before each. Their sizes: {sizes}"
        )
    return maps


def query_positions(width: int) -> Callable[[Tensor], Tensor]:
    """Two dense layers from boxes to the position vectors of queries, for all blocks of a decoder."""
    hidden = keras.layers.Dense(2 * width, "relu", name="query_position_hidden")
    output = keras.layers.Dense(width, name="query_position_output")
    return lambda boxes: output(hidden(boxes))


def projected(maps: list[Tensor], width: int, name: str, epsilon: float = 1e-5) -> list[Tensor]:
    """Feature maps with `width` channels each; `epsilon` is that of the batch norms behind the projections."""
    return [convolution(each, width, epsilon=epsilon, name=f"{name}_{level}") for level, each in enumerate(maps)]


def selected_queries(
    maps: list[Tensor], num_classes: int, num_queries: int, layer_norm_epsilon: float
) -> tuple[Tensor, Tensor]:
    """The pixels of feature maps that start as object queries, `(B, Q, D)`, and their boxes, without a gradient."""
    selection = QuerySelection(num_classes, num_queries, layer_norm_epsilon, dtype="float32", name="query_selection")
    queries, boxes, _ = selection(maps)
    return queries, ops.stop_gradient(boxes)


class DecoderBlocks(NamedTuple):
    """The parts of the blocks of the decoder, each of which has copies of its own.

    Attributes:
        size: with `hidden_dim`, `num_heads` and `intermediate_dim`.
        cross_attention: `MultiScaleDeformableAttention` to copy.
        activation: of the feed-forward.
        attention_dropout: float in [0, 1). Of the weights of self-attention.
        hidden_dropout: float in [0, 1). Of the hidden layer of the feed-forward.
        options: those of the blocks.
    """

    size: Any
    cross_attention: keras.layers.Layer
    activation: Activation
    attention_dropout: float
    hidden_dropout: float
    options: Config

    def block(self, index: int) -> DeformableDecoderBlock:
        """Returns a new block."""
        size = self.size
        width, rate = size.hidden_dim // size.num_heads, self.attention_dropout
        return DeformableDecoderBlock(
            PositionedAttention(size.num_heads, width, dropout=rate, name="self_attention"),
            clone(self.cross_attention, name="cross_attention"),
            DenseFeedForward(size.intermediate_dim, self.activation, self.hidden_dropout, name="feedforward"),
            name=f"{BLOCK}{index}",
            **self.options,
        )
