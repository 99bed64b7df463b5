"""The stack of encoder blocks over patches that image models share."""

from __future__ import annotations

import keras

from keras_transformer.blocks import EncoderBlock, Residual
from keras_transformer.models.building.size import Size
from keras_transformer.models.building.stack import make_attention, make_feed_forward
from keras_transformer.utils.types import Activation, LayerLike, Tensor
from keras_transformer.vision.patches.patch_embedding import pair_of


def image_input(image_size: int | tuple[int, int] | None, num_channels: int) -> keras.KerasTensor:
    """Symbolic images, float `(B, height, width, channels)`; None for images of any size."""
    return keras.Input((*image_sides(image_size), num_channels), name="images")


def image_sides(image_size: int | tuple[int, int] | None) -> tuple[int | None, ...]:
    """Height and width of images; None each for any."""
    return (None, None) if image_size is None else pair_of(image_size)


def image_stack(
    images: Tensor,
    embedding: keras.layers.Layer,
    size: Size,
    *,
    residual: str | Residual = "pre",
    mixer_residual: str | Residual | None = None,
    norm: str | keras.layers.Layer,
    first_norm: keras.layers.Layer | None = None,
    last_norm: keras.layers.Layer | None = None,
    attention: LayerLike | None = None,
    feedforward: str | keras.layers.Layer = "dense",
    activation: Activation = "gelu",
    dropout: float = 0.0,
    attention_dropout: float = 0.0,
    coordinates: keras.layers.Layer | None = None,
    block_name: str = "encoder_block",
    name: str,
) -> keras.Model:
    """The graph of a vision transformer.

    Args:
        images: symbolic images from `image_input`.
        embedding: `vision.PatchEmbedding`.
        size: `Size`.
        residual: name in `blocks.RESIDUALS`, or an instance to copy.
        mixer_residual: residual scheme of attention; None for `residual`.
        norm: layer to copy for each block.
        first_norm: layer after the embedding, or None.
        last_norm: layer after the blocks, or None.
        attention: template, as in `make_attention`.
        feedforward: a name in `feedforward.FEEDFORWARDS`, or an instance to copy.
        activation: activation of a feed-forward that is given by name.
        dropout: float. Of the outputs of attention and feed-forward.
        attention_dropout: float. Of the attention weights.
        coordinates: layer from images to the positions of their tokens, which the position in the attention of every block
            takes; None for none.
        block_name: str. The blocks are called this, with a number.
        name: str.

    Returns:
        `keras.Model`: "images" to tokens `(B, T, D)`.
    """
    x = embedding(images)
    positions = {} if coordinates is None else {"positions": coordinates(images)}
    x = x if first_norm is None else first_norm(x)
    for index in range(size.num_layers):
        block = EncoderBlock(
            make_attention(size, attention, dropout=attention_dropout),
            make_feed_forward(size.intermediate_dim, feedforward, activation),
            residual=residual,
            mixer_residual=mixer_residual,
            norm=norm,
            dropout=dropout,
            name=f"{block_name}_{index}",
        )
        x = block(x, **positions)
    x = x if last_norm is None else last_norm(x)
    return keras.Model(images, x, name=name)
