"""ResNet, up to its feature maps."""

from __future__ import annotations

from typing import NamedTuple

import keras
from keras import ops

from keras_transformer.models.building.convolution import activated, convolution
from keras_transformer.models.building.feature_maps import PREFIX
from keras_transformer.models.building.image_stack import image_input
from keras_transformer.utils.serialization import choice
from keras_transformer.utils.types import Activation


class ResNetSize(NamedTuple):
    """Size of a ResNet.

    Attributes:
        hidden_dims: tuple of ints: number of channels of each stage.
        num_layers: tuple of ints: number of blocks of each stage.
        is_bottleneck: bool. Whether blocks have a convolution of a quarter of the channels between two of 1 x 1, or two
            convolutions of all channels.
        stem_dim: int. Number of channels before the first stage.

    Example:

    >>> ResNetSize((64, 128), (2, 2), is_bottleneck=False).stem_dim
    64
    """

    hidden_dims: tuple[int, ...]
    num_layers: tuple[int, ...]
    is_bottleneck: bool = True
    stem_dim: int = 64


_BASIC, _BOTTLENECK = (64, 128, 256, 512), (256, 512, 1024, 2048)
# He et al., arXiv 1512.03385, table 1.
SIZES = {
    "18": ResNetSize(_BASIC, (2, 2, 2, 2), is_bottleneck=False),
    "34": ResNetSize(_BASIC, (3, 4, 6, 3), is_bottleneck=False),
    "50": ResNetSize(_BOTTLENECK, (3, 4, 6, 3)),
    "101": ResNetSize(_BOTTLENECK, (3, 4, 23, 3)),
    "152": ResNetSize(_BOTTLENECK, (3, 8, 36, 3)),
}


def ResNet(
    size: str | ResNetSize = "50",
    image_size: int | tuple[int, int] | None = None,
    *,
    num_channels: int = 3,
    activation: Activation = "relu",
    downsample_in_first_stage: bool = False,
    downsample_in_bottleneck: bool = False,
    frozen_norm: bool = False,
    variant: str = "original",
    name: str = "resnet",
) -> keras.Model:
    """ResNet up to its last feature map, whose pixels are its tokens: a backbone for `models.DETR`, or of tasks.

    Args:
        size: "18", "34", "50", "101", "152", or a `ResNetSize`.
        image_size: int or pair of ints. Pixels; the last feature map has 1/32 of them for four stages. None for any size.
        num_channels: int.
        activation: after the stem and after each block; within blocks it is ReLU.
        downsample_in_first_stage: bool. Whether the first stage has a stride of 2 too.
        downsample_in_bottleneck: bool. Whether the stride of a bottleneck is in its first convolution, not in its second.
        frozen_norm: bool. Whether batch norms keep their weights and statistics in training, as for detectors with published
            weights.
        variant: "original", or "d" for ResNet-D: three convolutions of 3 x 3 instead of one of 7 x 7 at first, shortcuts
            that average 2 x 2 pixels instead of leaving out three of them, and a convolution in the shortcut of the first
            block of every stage of two-convolution blocks.
        name: str.

    Returns:
        `keras.Model`: "images", float `(B, height, width, channels)`, to the pixels of the last feature map, row by row,
        `(B, T, D)`. The feature maps of all stages are the outputs of its layers "feature_map_0" to "feature_map_3".

    Raises:
        ValueError: unknown size or variant; other numbers of channels than of blocks.

    Example:

    >>> ResNet(ResNetSize((16, 32), (1, 1), stem_dim=8), image_size=32).output_shape
    (None, 16, 32)

    Reference: He et al., Deep Residual Learning for Image Recognition, arXiv 1512.03385; the stride in the second
    convolution of a bottleneck as in torchvision. ResNet-D: He et al., Bag of Tricks, arXiv 1812.01187, section 4.2; its
    blocks of two convolutions as in the published code of RT-DETR.
    """
    size = choice(size, SIZES, argument="size") if isinstance(size, str) else ResNetSize(*size)
    if not len(size.hidden_dims) == len(size.num_layers) >= 1:
        raise ValueError(f"hidden_dims and num_layers must be of one length. Received: {size}")
    is_d = choice(variant, {"original": False, "d": True}, argument="variant")
    blocks = _Blocks(size.is_bottleneck, downsample_in_bottleneck, frozen_norm, is_d)
    images = image_input(image_size, num_channels)
    x = _stem(images, size.stem_dim, activation, frozen_norm, is_d)
    for stage, (width, count) in enumerate(zip(size.hidden_dims, size.num_layers, strict=True)):
        for index in range(count):
            strides = 2 if not index and (stage or downsample_in_first_stage) else 1
            name_of_block = f"stage_{stage}_block_{index}"
            x = blocks.apply(x, width, strides, not index, name_of_block)
            last = f"{PREFIX}{stage}" if index == count - 1 else f"{name_of_block}_activation"
            x = activated(x, activation, last)
    return keras.Model(images, keras.layers.Reshape((-1, x.shape[-1]), name="tokens")(x), name=name)


def _stem(
    images: keras.KerasTensor, width: int, activation: Activation, frozen_norm: bool, is_d: bool
) -> keras.KerasTensor:
    """The first convolutions, and the maximum of 3 x 3 pixels."""
    if is_d:
        x = images
        for index, filters in enumerate((width // 2, width // 2, width)):
            strides, name = 1 if index else 2, f"stem_{index}"
            x = convolution(x, filters, 3, strides, activation, frozen_norm=frozen_norm, name=name)
    else:
        x = convolution(images, width, 7, 2, activation, frozen_norm=frozen_norm, name="stem")
    for axis in (1, 2):  # A maximum does not change if pixels at the edges are there twice.
        edges = (x[:, :1], x, x[:, -1:]) if axis == 1 else (x[:, :, :1], x, x[:, :, -1:])
        x = ops.concatenate(edges, axis=axis)
    return keras.layers.MaxPooling2D(3, 2, name="stem_pooling")(x)


class _Blocks(NamedTuple):
    """What the blocks are made of; `is_d` for those of ResNet-D."""

    is_bottleneck: bool
    downsample_in_bottleneck: bool
    frozen_norm: bool
    is_d: bool

    def apply(self, x: keras.KerasTensor, width: int, strides: int, is_first: bool, name: str) -> keras.KerasTensor:
        """Returns the sum of a new block and its shortcut, before the activation; `is_first`: of its stage."""
        y = x
        for number, (filters, kernel_size) in enumerate(_convolutions(width, self.is_bottleneck)):
            is_strided = number == (1 if self.is_bottleneck and not self.downsample_in_bottleneck else 0)
            is_last = number == (2 if self.is_bottleneck else 1)
            step, inside = strides if is_strided else 1, None if is_last else "relu"
            y = convolution(
                y, filters, kernel_size, step, inside, frozen_norm=self.frozen_norm, name=f"{name}_{number}"
            )
        return keras.layers.Add(name=f"{name}_sum")([self._shortcut(x, width, strides, is_first, name), y])

    def _shortcut(self, x: keras.KerasTensor, width: int, strides: int, is_first: bool, name: str) -> keras.KerasTensor:
        changes = strides > 1 or x.shape[-1] != width
        if self.is_d and strides > 1 and (self.is_bottleneck or x.shape[-1] != width):
            x, strides = keras.layers.AveragePooling2D(2, 2, "same", name=f"{name}_shortcut_pooling")(x), 1
        if changes or (self.is_d and is_first and not self.is_bottleneck):
            x = convolution(x, width, 1, strides, frozen_norm=self.frozen_norm, name=f"{name}_shortcut")
        return x


def _convolutions(width, is_bottleneck):
    """Channels and sides of the kernels of a block."""
    return [(width // 4, 1), (width // 4, 3), (width, 1)] if is_bottleneck else [(width, 3), (width, 3)]
