"""RedNet: a ResNet whose spatial convolutions are involutions."""

from __future__ import annotations

from collections.abc import Sequence

import keras

from keras_transformer.models.building.image_stack import image_input
from keras_transformer.utils.serialization import choice
from keras_transformer.vision import Involution

# Li et al., arXiv 2103.06255: the blocks of each of four stages, by the number of layers.
SIZES = {
    "26": (1, 2, 4, 1),
    "38": (2, 3, 5, 2),
    "50": (3, 4, 6, 3),
    "101": (3, 4, 23, 3),
    "152": (3, 8, 36, 3),
}
# How much wider a block is outside than inside.
_EXPANSION = 4


def RedNet(
    size: str | Sequence[int] = "50",
    image_size: int | tuple[int, int] = 224,
    *,
    num_channels: int = 3,
    hidden_dim: int = 64,
    kernel_size: int = 7,
    group_channels: int = 16,
    reduction_ratio: int = 4,
    name: str = "rednet",
) -> keras.Model:
    """RedNet up to its last feature map, whose pixels are its tokens. `tasks.ImageClassifier(pooling="mean")` puts a head on
    it.

    Args:
        size: "26", "38", "50", "101", "152", or a tuple of ints: how many blocks each stage has.
        image_size: int or pair of ints. Pixels; the feature map has 1/32 of them for four stages.
        num_channels: int.
        hidden_dim: int, even. Channels inside the blocks of the first stage; they double from stage to stage.
        kernel_size: int >= 1, odd. Of the involutions.
        group_channels: int >= 1. How many channels share a kernel; it divides `hidden_dim // 2`.
        reduction_ratio: int >= 1. See `vision.Involution`.
        name: str.

    Returns:
        `keras.Model`: "images", float `(B, height, width, channels)`, to the pixels of the feature map, row by row,
        `(B, T, D)`; D is `hidden_dim · 2^(stages + 1)`.

    Raises:
        ValueError: unknown size; channels that do not divide.

    Example:

    >>> RedNet((1, 1), image_size=32, hidden_dim=32).output_shape
    (None, 16, 256)

    Reference: Li et al., Involution: Inverting the Inherence of Convolution for Visual Recognition, arXiv 2103.06255,
    with the details of its code.
    """
    num_blocks = choice(size, SIZES, argument="size") if isinstance(size, str) else tuple(size)
    options = {"group_channels": group_channels, "reduction_ratio": reduction_ratio}
    images = image_input(image_size, num_channels)
    x = _convolution(images, hidden_dim // 2, 3, 2, "stem_1")
    x = _normalized(Involution(3, name="stem_2", **options)(x), "stem_2")
    x = _convolution(x, hidden_dim, 3, 1, "stem_3")
    x = keras.layers.ZeroPadding2D(1, name="stem_padding")(x)  # Zeros are neutral for a maximum after a ReLU.
    x = keras.layers.MaxPooling2D(3, 2, name="stem_pooling")(x)
    for stage, count in enumerate(num_blocks):
        width = hidden_dim * 2**stage
        for index in range(count):
            strides = 2 if stage and not index else 1
            block = f"stage_{stage}_block_{index}"
            x = _block(x, width, Involution(kernel_size, strides, name=f"{block}_involution", **options), block)
    tokens = keras.layers.Reshape((-1, x.shape[-1]), name="tokens")(x)
    return keras.Model(images, tokens, name=name)


def _block(x, width, involution, name):
    """A residual bottleneck around an involution, with a projection where the shape changes."""
    wide = _EXPANSION * width
    y = _convolution(x, width, 1, 1, f"{name}_reduce")
    y = _normalized(involution(y), f"{name}_involution")
    y = _convolution(y, wide, 1, 1, f"{name}_expand", activation=None)
    if x.shape[-1] != wide or involution.strides > 1:
        x = _convolution(x, wide, 1, involution.strides, f"{name}_shortcut", activation=None)
    return keras.layers.ReLU(name=f"{name}_relu")(keras.layers.Add(name=f"{name}_sum")([x, y]))


def _convolution(x, filters, kernel_size, strides, name, activation: str | None = "relu"):
    if kernel_size > 1:  # As many zeros on every side, whatever the stride.
        x = keras.layers.ZeroPadding2D(kernel_size // 2, name=f"{name}_padding")(x)
    x = keras.layers.Conv2D(filters, kernel_size, strides, use_bias=False, name=f"{name}_convolution")(x)
    return _normalized(x, name, activation)


def _normalized(x, name, activation: str | None = "relu"):
    x = keras.layers.BatchNormalization(epsilon=1e-5, momentum=0.9, name=f"{name}_norm")(x)
    return x if activation is None else keras.layers.ReLU(name=f"{name}_activation")(x)
