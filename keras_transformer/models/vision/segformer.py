"""SegFormer's hierarchical encoder, the Mix Transformer."""

from __future__ import annotations

from typing import NamedTuple

import keras
import numpy as np

from keras_transformer.attention.layers.spatial.spatial_reduction_attention import SpatialReductionAttention
from keras_transformer.blocks import EncoderBlock, PreNormResidual
from keras_transformer.feedforward import MixFeedForward
from keras_transformer.layers.norms import LayerNormalization
from keras_transformer.models.building.feature_maps import PREFIX
from keras_transformer.models.building.image_stack import image_input
from keras_transformer.utils.serialization import choice
from keras_transformer.utils.types import Activation


class SegFormerSize(NamedTuple):
    """Size of a Mix Transformer: for each stage an int.

    Attributes:
        hidden_dims: tuple of ints: width of the tokens.
        num_layers: tuple of ints: number of blocks.
        num_heads: tuple of ints: number of attention heads.
        patch_sizes: tuple of ints: rows and columns of the patches that become tokens, which overlap.
        strides: tuple of ints: distance of the patches.
        reduction_ratios: tuple of ints: how much smaller the grid of the keys and values is: see
            `attention.SpatialReductionAttention`.
        mlp_ratios: tuple of ints: ratio of the hidden width of the feed-forward to the width of the tokens.

    Example:

    >>> SegFormerSize((32, 64, 160, 256), (2, 2, 2, 2)).strides
    (4, 2, 2, 2)
    """

    hidden_dims: tuple[int, ...]
    num_layers: tuple[int, ...]
    num_heads: tuple[int, ...] = (1, 2, 5, 8)
    patch_sizes: tuple[int, ...] = (7, 3, 3, 3)
    strides: tuple[int, ...] = (4, 2, 2, 2)
    reduction_ratios: tuple[int, ...] = (8, 4, 2, 1)
    mlp_ratios: tuple[int, ...] = (4, 4, 4, 4)


_WIDE = (64, 128, 320, 512)
# Xie et al., arXiv 2105.15203, table 6, with the numbers of blocks and the ratios of the published code.
SIZES = {
    "B0": SegFormerSize((32, 64, 160, 256), (2, 2, 2, 2)),
    "B1": SegFormerSize(_WIDE, (2, 2, 2, 2)),
    "B2": SegFormerSize(_WIDE, (3, 4, 6, 3)),
    "B3": SegFormerSize(_WIDE, (3, 4, 18, 3)),
    "B4": SegFormerSize(_WIDE, (3, 8, 27, 3)),
    "B5": SegFormerSize(_WIDE, (3, 6, 40, 3)),
}


def SegFormer(
    size: str | SegFormerSize = "B0",
    image_size: int | tuple[int, int] | None = None,
    *,
    num_channels: int = 3,
    activation: Activation = "gelu",
    dropout: float = 0.0,
    attention_dropout: float = 0.0,
    stochastic_depth: float = 0.1,
    layer_norm_epsilon: float = 1e-5,
    name: str = "segformer",
) -> keras.Model:
    """SegFormer's encoder, the Mix Transformer: four stages of tokens in ever smaller grids, without positions.

    `tasks.SemanticSegmenter` adds the head that gives each pixel a class; `tasks.ImageClassifier(pooling="mean")` classifies
    images.

    Args:
        size: "B0" to "B5", or a `SegFormerSize`.
        image_size: int or pair of ints. Pixels. None for images of any size.
        num_channels: int.
        activation: of the feed-forward.
        dropout: float in [0, 1). Of what attention and feed-forward give, and of the hidden layer of the feed-forward.
        attention_dropout: float in [0, 1). Of the attention weights.
        stochastic_depth: float in [0, 1). Rate of stochastic depth of the last block, in training; it increases linearly
            from 0 at the first.
        layer_norm_epsilon: float > 0. Of every norm.
        name: str.

    Returns:
        `keras.Model`: "images", float `(B, height, width, channels)`, to the tokens of the last stage, row by row,
        `(B, T, D)`. The grids of all stages are the outputs of its layers "feature_map_0" to "feature_map_3".

    Raises:
        ValueError: unknown size; tuples of different lengths; heads that do not divide the width; an image with a grid that
            is smaller than the ratio of the reduction.

    Example:

    >>> SegFormer(SegFormerSize((8, 12), (1, 2), (1, 2), (7, 3), (4, 2), (2, 1), (2, 2)), image_size=32).output_shape
    (None, 16, 12)

    Reference: Xie et al., SegFormer, arXiv 2105.15203, sections 3.1 and 4.1; the published code has an epsilon of 1e-6 in
    blocks and behind stages, transformers 1e-5 everywhere.
    """
    size = choice(size, SIZES, argument="size") if isinstance(size, str) else SegFormerSize(*size)
    _check(size)
    rates = iter(np.linspace(0.0, stochastic_depth, sum(size.num_layers)).tolist())
    norm = LayerNormalization(epsilon=layer_norm_epsilon)
    x = images = image_input(image_size, num_channels)
    for stage, width in enumerate(size.hidden_dims):
        x = _patches(x, width, size.patch_sizes[stage], size.strides[stage], layer_norm_epsilon, f"stage_{stage}")
        heads = size.num_heads[stage]
        for index in range(size.num_layers[stage]):
            mixer = SpatialReductionAttention(
                heads,
                width // heads,
                size.reduction_ratios[stage],
                dropout=attention_dropout,
                layer_norm_epsilon=layer_norm_epsilon,
                name="self_attention",
            )
            hidden = int(size.mlp_ratios[stage] * width)
            block = EncoderBlock(
                mixer,
                MixFeedForward(hidden, activation=activation, dropout=dropout, name="feedforward"),
                residual=PreNormResidual(norm, next(rates)),
                dropout=dropout,
                name=f"stage_{stage}_block_{index}",
            )
            x = block(x)
        x = LayerNormalization(epsilon=layer_norm_epsilon, name=f"{PREFIX}{stage}")(x)
    return keras.Model(images, keras.layers.Reshape((-1, x.shape[-1]), name="tokens")(x), name=name)


def _check(size):
    lengths = {len(each) for each in size}
    if len(lengths) != 1 or 0 in lengths:
        raise ValueError(f"All tuples of the size must be of one length, the number of stages. Received: {size}")
    if any(width % heads for width, heads in zip(size.hidden_dims, size.num_heads, strict=True)):
        raise ValueError(f"num_heads must divide the width of each stage. Received: {size}")


def _patches(x, width, patch_size, stride, epsilon, name):
    """Overlapping patches as tokens in a grid, normalized."""
    # As many zeros on every side, whatever the stride.
    x = keras.layers.ZeroPadding2D(patch_size // 2, name=f"{name}_padding")(x)
    x = keras.layers.Conv2D(width, patch_size, strides=stride, name=f"{name}_projection")(x)
    return LayerNormalization(epsilon=epsilon, name=f"{name}_embedding_norm")(x)
