"""YOLOS."""

from __future__ import annotations

import functools
from typing import Any

import keras

from keras_transformer.blocks import EncoderBlock
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.norms import LayerNormalization
from keras_transformer.models.building.image_stack import image_input
from keras_transformer.models.building.size import Size, get_size
from keras_transformer.models.building.stack import final_norm, make_attention, make_feed_forward
from keras_transformer.models.vision.vit import SIZES as _VIT_SIZES
from keras_transformer.utils.types import Activation, AttentionLike
from keras_transformer.vision import DetectionTokens, GridPositions, PatchEmbedding

# Fang et al., arXiv 2106.00666, table 1.
SIZES = {name: _VIT_SIZES[name] for name in ("Ti", "S", "B")}


def YOLOS(
    size: str | Size = "Ti",
    patch_size: int | tuple[int, int] = 16,
    image_size: int | tuple[int, int] | None = None,
    *,
    num_channels: int = 3,
    grid_size: int | tuple[int, int] | None = None,
    num_detection_tokens: int = 100,
    positions_in_blocks: bool = False,
    activation: Activation = "gelu",
    dropout: float = 0.0,
    attention_dropout: float = 0.0,
    attention: AttentionLike = None,
    layer_norm_epsilon: float = 1e-6,
    name: str = "yolos",
) -> keras.Model:
    """YOLOS: the Vision Transformer with a token for each object it may find. `tasks.ObjectDetector` adds the heads.

    Args:
        size: "Ti", "S", "B", or a `Size`.
        patch_size: int or pair of ints. Pixels.
        image_size: int or pair of ints, a multiple of the patch size. Pixels. None for images of any size.
        num_channels: int.
        grid_size: int or pair of ints: the patches that the position tables are for. None for those of `image_size`; 32 x 54
            patches, 512 x 864 pixels in patches of 16, for images of any size.
        num_detection_tokens: int >= 1. The largest number of objects of an image.
        positions_in_blocks: bool. Whether a position table of its own follows every block but the last.
        activation: of the feed-forward.
        dropout: float in [0, 1). Of the embedded patches, and of what attention and feed-forward give.
        attention_dropout: float in [0, 1). Of the attention weights.
        attention: a name in `attention.MECHANISMS`, or a layer like `MultiHeadAttention` to copy for each block.
        layer_norm_epsilon: float > 0. Of every norm.
        name: str.

    Returns:
        `keras.Model`: "images", float `(B, height, width, channels)`, to tokens `(B, 1 + patches + Q, D)`: the class token,
        the patches, and the detection tokens.

    Raises:
        ValueError: unknown size; an image that does not divide into patches.

    Example:

    >>> model = YOLOS(Size(1, 8, 2, 16), patch_size=4, image_size=(8, 12), num_detection_tokens=5)
    >>> model.output_shape
    (None, 12, 8)

    Reference: Fang et al., You Only Look at One Sequence, arXiv 2106.00666; positions in blocks, as in its published code.
    """
    size = get_size(size, SIZES)
    images = image_input(image_size, num_channels)
    grid_size = (32, 54) if image_size is None and grid_size is None else grid_size
    positions = functools.partial(GridPositions, patch_size, grid_size, num_last_tokens=num_detection_tokens)
    x = PatchEmbedding(size.hidden_dim, patch_size, interpolation=None, name="patch_embedding")(images)
    x = DetectionTokens(num_detection_tokens, name="detection_tokens")(x)
    x = positions(name="position_embedding")(x, images)
    x = Dropout(dropout, name="embedding_dropout")(x)
    norm = LayerNormalization(epsilon=layer_norm_epsilon)
    last_norm: Any = final_norm("pre", norm)
    for index in range(size.num_layers):
        if index and positions_in_blocks:
            x = positions(name=f"position_embedding_{index}")(x, images)
        block = EncoderBlock(
            make_attention(size, attention, dropout=attention_dropout),
            make_feed_forward(size.intermediate_dim, "dense", activation),
            residual="pre",
            norm=norm,
            dropout=dropout,
            name=f"encoder_block_{index}",
        )
        x = block(x)
    return keras.Model(images, last_norm(x), name=name)
