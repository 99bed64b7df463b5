"""The image encoder of Segment Anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import keras

from keras_transformer.attention.layers.spatial.window_attention import WindowAttention
from keras_transformer.blocks import EncoderBlock
from keras_transformer.feedforward import DenseFeedForward
from keras_transformer.layers.norms import LayerNormalization
from keras_transformer.models.building.image_stack import image_input
from keras_transformer.models.building.stack import make_norm
from keras_transformer.utils.serialization import choice
from keras_transformer.utils.types import Activation
from keras_transformer.vision import PatchEmbedding
from keras_transformer.vision.patches.patch_embedding import pair_of


class SAMSize(NamedTuple):
    """Size of the image encoder of SAM.

    Attributes:
        num_layers: int: number of blocks.
        hidden_dim: int: width of the tokens.
        num_heads: int: number of attention heads.
        intermediate_dim: int: hidden width of the feed-forward.
        global_blocks: tuple of ints: the blocks that attend to the whole grid; the others attend within windows.

    Example:

    >>> SAMSize(12, 768, 12, 3072).global_blocks
    (2, 5, 8, 11)
    """

    num_layers: int
    hidden_dim: int
    num_heads: int
    intermediate_dim: int
    global_blocks: tuple[int, ...] = (2, 5, 8, 11)


# Kirillov et al., arXiv 2304.02643, appendix A: ViT-B, L and H with four blocks of global attention at equal distances.
SIZES = {
    "B": SAMSize(12, 768, 12, 3072),
    "L": SAMSize(24, 1024, 16, 4096, (5, 11, 17, 23)),
    "H": SAMSize(32, 1280, 16, 5120, (7, 15, 23, 31)),
}
# Of the norms of the neck, whatever the norms of the blocks have.
_NECK_EPSILON = 1e-6


def SAM(
    size: str | SAMSize = "B",
    patch_size: int | tuple[int, int] = 16,
    image_size: int | tuple[int, int] = 1024,
    *,
    num_channels: int = 3,
    output_dim: int = 256,
    window_size: int = 14,
    use_position_embedding: bool = True,
    use_relative_positions: bool = True,
    use_attention_bias: bool = True,
    activation: Activation = "gelu",
    attention_dropout: float = 0.0,
    layer_norm_epsilon: float = 1e-6,
    name: str = "sam",
) -> keras.Model:
    """The image encoder of Segment Anything: a ViT with window attention and a few blocks of global attention, and a neck.

    `tasks.PromptedSegmenter` adds the prompt encoder and the mask decoder.

    Args:
        size: "B", "L", "H", or a `SAMSize`.
        patch_size: int or pair of ints. Pixels.
        image_size: int or pair of ints, a multiple of the patch size. Pixels.
        num_channels: int.
        output_dim: int. C, the channels of the feature map.
        window_size: int. Rows and columns of a window, in tokens.
        use_position_embedding: bool. Whether a learned vector for each patch is added.
        use_relative_positions: bool. Whether attention has `positions.DecomposedGridBias`.
        use_attention_bias: bool. Whether the projections of queries, keys and values have biases.
        activation: activation of the feed-forward.
        attention_dropout: float in [0, 1). Of the attention weights.
        layer_norm_epsilon: float > 0. Of the norms of the blocks; those of the neck have 1e-6.
        name: str.

    Returns:
        `keras.Model`: "images", float `(B, height, width, channels)`, to a feature map `(B, rows, columns, C)`, a row and a
        column for each patch.

    Raises:
        ValueError: unknown size; heads that do not divide the width; a global block that does not exist; an image that does
            not divide into patches.

    Example:

    >>> SAM(SAMSize(2, 8, 2, 16, (1,)), patch_size=4, image_size=20, output_dim=6, window_size=3).output_shape
    (None, 5, 5, 6)

    Reference: Kirillov et al., Segment Anything, arXiv 2304.02643, section 3 and appendix A (image encoder), after Li et
    al., arXiv 2203.16527.
    """
    size = choice(size, SIZES, argument="size") if isinstance(size, str) else SAMSize(*size)
    patch, sides = pair_of(patch_size), pair_of(image_size)
    _check(size)
    images = image_input((sides[0], sides[1]), num_channels)
    grid = _grid(sides, patch)
    table = "bilinear" if use_position_embedding else None
    embedding = PatchEmbedding(size.hidden_dim, patch, class_token=False, interpolation=table, name="patch_embedding")
    norm = LayerNormalization(epsilon=layer_norm_epsilon)
    x = embedding(images)
    for index in range(size.num_layers):
        mixer = WindowAttention(
            size.num_heads,
            size.hidden_dim // size.num_heads,
            grid,
            None if index in size.global_blocks else window_size,
            use_positions=use_relative_positions,
            dropout=attention_dropout,
            use_bias=use_attention_bias,
            name="window_attention",
        )
        feedforward = DenseFeedForward(size.intermediate_dim, activation, name="feedforward")
        x = EncoderBlock(mixer, feedforward, residual="pre", norm=norm, name=f"encoder_block_{index}")(x)
    x = keras.layers.Reshape((*grid, size.hidden_dim), name="grid")(x)
    return keras.Model(images, _neck(x, output_dim), name=name)


def _neck(x: keras.KerasTensor, output_dim: int) -> keras.KerasTensor:
    """The feature map: two convolutions, each with a norm behind it."""
    norm = LayerNormalization(epsilon=_NECK_EPSILON)
    x = keras.layers.Dense(output_dim, use_bias=False, name="neck_projection")(x)
    x = make_norm(norm, "neck_projection_norm")(x)
    x = keras.layers.Conv2D(output_dim, 3, padding="same", use_bias=False, name="neck_convolution")(x)
    return make_norm(norm, "features")(x)


def _grid(sides: Sequence[int], patch: Sequence[int]) -> tuple[int, int]:
    """The rows and columns of patches."""
    if any(side % part for side, part in zip(sides, patch, strict=True)):
        raise ValueError(f"image_size {sides} is not a multiple of patch_size {patch}.")
    return sides[0] // patch[0], sides[1] // patch[1]


def _check(size):
    if size.hidden_dim % size.num_heads:
        raise ValueError(f"num_heads must divide the width. Received: {size}")
    if any(not 0 <= index < size.num_layers for index in size.global_blocks):
        raise ValueError(f"global_blocks must be from 0 to num_layers - 1. Received: {size}")
