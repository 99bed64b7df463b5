"""ConvNeXt, as the convolutional models of DINOv3."""

from __future__ import annotations

from typing import NamedTuple

import keras

from keras_transformer.layers.norms import LayerNormalization
from keras_transformer.models.building.image_stack import image_input
from keras_transformer.utils.serialization import choice
from keras_transformer.utils.types import Activation
from keras_transformer.vision import ConvNeXtBlock


class ConvNeXtSize(NamedTuple):
    """Size of a ConvNeXt.

    Attributes:
        hidden_dims: tuple of ints: number of channels of each stage.
        num_layers: tuple of ints: number of blocks of each stage.

    Example:

    >>> ConvNeXtSize(hidden_dims=(8, 16), num_layers=(2, 1)).num_layers
    (2, 1)
    """

    hidden_dims: tuple[int, ...]
    num_layers: tuple[int, ...]


# Liu et al., arXiv 2201.03545, section 3.
SIZES = {
    "T": ConvNeXtSize((96, 192, 384, 768), (3, 3, 9, 3)),
    "S": ConvNeXtSize((96, 192, 384, 768), (3, 3, 27, 3)),
    "B": ConvNeXtSize((128, 256, 512, 1024), (3, 3, 27, 3)),
    "L": ConvNeXtSize((192, 384, 768, 1536), (3, 3, 27, 3)),
}


def ConvNeXt(
    size: str | ConvNeXtSize = "T",
    image_size: int | tuple[int, int] | None = 224,
    *,
    num_channels: int = 3,
    activation: Activation = "gelu",
    layer_scale: float = 1e-6,
    stochastic_depth: float = 0.0,
    layer_norm_epsilon: float = 1e-6,
    name: str = "convnext",
) -> keras.Model:
    """ConvNeXt, as the convolutional models of DINOv3: the mean of the last feature map and its pixels, as tokens.

    Args:
        size: "T", "S", "B", "L", or a `ConvNeXtSize`.
        image_size: int or pair of ints. Pixels; the feature map has 1/32 of them for four stages. None for any size.
        num_channels: int.
        activation: of the blocks.
        layer_scale: float. What the scales of the blocks start as.
        stochastic_depth: float in [0, 1): see `vision.ConvNeXtBlock`. That of the last block; from 0 for the first, it grows
            linearly.
        layer_norm_epsilon: float > 0. Of every norm.
        name: str.

    Returns:
        `keras.Model`: "images", float `(B, height, width, channels)`, to tokens `(B, 1 + T, D)`: the normalized mean of the
        pixels of the feature map, and the normalized pixels, row by row.

    Raises:
        ValueError: unknown size; other numbers of channels than of blocks.

    Example:

    >>> ConvNeXt(ConvNeXtSize((8, 16), (1, 2)), image_size=32).output_shape
    (None, 17, 16)

    Reference: Liu et al., A ConvNet for the 2020s, arXiv 2201.03545; the tokens: Siméoni et al., DINOv3, arXiv 2508.10104,
    as in its published code.
    """
    hidden_dims, num_layers = choice(size, SIZES, argument="size") if isinstance(size, str) else size
    if not len(hidden_dims) == len(num_layers) >= 1:
        raise ValueError(f"hidden_dims and num_layers must be of one length. Received: {hidden_dims}, {num_layers}")

    def norm(name):
        return LayerNormalization(epsilon=layer_norm_epsilon, name=name)

    x = images = image_input(image_size, num_channels)
    total, number = sum(num_layers), 0
    for stage, (width, count) in enumerate(zip(hidden_dims, num_layers, strict=True)):
        stride = 2 if stage else 4
        x = norm(f"stage_{stage}_norm")(x) if stage else x
        x = keras.layers.Conv2D(width, stride, stride, name=f"stage_{stage}_projection")(x)
        x = x if stage else norm(f"stage_{stage}_norm")(x)
        for index in range(count):
            block = ConvNeXtBlock(
                activation=activation,
                layer_scale=layer_scale,
                stochastic_depth=stochastic_depth * number / max(total - 1, 1),
                layer_norm_epsilon=layer_norm_epsilon,
                name=f"stage_{stage}_block_{index}",
            )
            x, number = block(x), number + 1
    tokens = keras.layers.Reshape((-1, x.shape[-1]), name="tokens")(x)
    mean = keras.layers.GlobalAveragePooling1D(keepdims=True, name="mean")(tokens)
    x = keras.layers.Concatenate(axis=1, name="mean_and_tokens")([mean, tokens])
    return keras.Model(images, norm("final_norm")(x), name=name)
