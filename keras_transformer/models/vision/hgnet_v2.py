"""HGNetV2, up to its feature maps."""

from __future__ import annotations

from typing import Any, NamedTuple

import keras

from keras_transformer.layers.learnable_affine import LearnableAffine
from keras_transformer.models.building.convolution import convolution
from keras_transformer.models.building.feature_maps import PREFIX
from keras_transformer.models.building.image_stack import image_input
from keras_transformer.utils.serialization import choice
from keras_transformer.utils.types import Activation, Tensor


class HGNetV2Stage(NamedTuple):
    """A stage of HGNetV2.

    Attributes:
        inner_dim: int. Channels of the convolutions of a block.
        hidden_dim: int. Channels of the output.
        num_blocks: int.
        num_layers: int. Convolutions of a block.
        kernel_size: int.
        is_light: bool. Whether each convolution is one of 1 x 1 and a depthwise one.
        strides: int, or None for no downsampling before the blocks.

    Example:

    >>> HGNetV2Stage(32, 64, 1, 3).strides
    2
    """

    inner_dim: int
    hidden_dim: int
    num_blocks: int
    num_layers: int
    kernel_size: int = 3
    is_light: bool = False
    strides: int | None = 2


class HGNetV2Size(NamedTuple):
    """Size of HGNetV2.

    Attributes:
        stem_dims: pair of ints: channels in the stem and of its output.
        stages: tuple of `HGNetV2Stage`.

    Example:

    >>> HGNetV2Size((8, 16), (HGNetV2Stage(8, 16, 1, 2, strides=None),)).stem_dims
    (8, 16)
    """

    stem_dims: tuple[int, int]
    stages: tuple[HGNetV2Stage, ...]


def _size(stem, inner, outer, blocks, layers):
    kinds = ((3, False, None), (3, False, 2), (5, True, 2), (5, True, 2))
    stages = zip(inner, outer, blocks, (layers,) * 4, kinds, strict=True)
    return HGNetV2Size(stem, tuple(HGNetV2Stage(*stage[:4], *stage[4]) for stage in stages))


# As in the published code of Peng et al., D-FINE, arXiv 2410.13842.
SIZES = {
    "B0": _size((16, 16), (16, 32, 64, 128), (64, 256, 512, 1024), (1, 1, 2, 1), 3),
    "B2": _size((24, 32), (32, 64, 128, 256), (96, 384, 768, 1536), (1, 1, 3, 1), 4),
    "B4": _size((32, 48), (48, 96, 192, 384), (128, 512, 1024, 2048), (1, 1, 3, 1), 6),
    "B5": _size((32, 64), (64, 128, 256, 512), (128, 512, 1024, 2048), (1, 2, 5, 2), 6),
}


def HGNetV2(
    size: str | HGNetV2Size = "B4",
    image_size: int | tuple[int, int] | None = None,
    *,
    num_channels: int = 3,
    activation: Activation = "relu",
    learnable_affine: bool = False,
    frozen_norm: bool = False,
    name: str = "hgnet_v2",
) -> keras.Model:
    """HGNetV2 up to its last feature map, whose pixels are its tokens: a backbone for `models.DFINE`.

    Args:
        size: "B0", "B2", "B4", "B5", or an `HGNetV2Size`.
        image_size: int or pair of ints. Pixels; the last feature map has 1/32 of them. None for any size.
        num_channels: int.
        activation: of the stem; elsewhere it is ReLU.
        learnable_affine: bool. Whether a `LearnableAffine` follows each activation, as in the small sizes of D-FINE.
        frozen_norm: bool. Whether batch norms keep their weights and statistics in training.
        name: str.

    Returns:
        `keras.Model`: "images", float `(B, height, width, channels)`, to the pixels of the last feature map, row by row,
        `(B, T, D)`. The feature maps of all stages are the outputs of its layers "feature_map_0" to "feature_map_3".

    Raises:
        ValueError: unknown size.

    Example:

    >>> stages = (HGNetV2Stage(4, 8, 1, 2, strides=None), HGNetV2Stage(4, 16, 2, 2, 5, True))
    >>> HGNetV2(HGNetV2Size((8, 8), stages), image_size=32).output_shape
    (None, 16, 16)

    Reference: PP-HGNetV2 of PaddleClas, as used by Zhao et al., RT-DETR, arXiv 2304.08069, section 5.1.
    """
    size = choice(size, SIZES, argument="size") if isinstance(size, str) else HGNetV2Size(*size)

    def layer(x, filters, kernel_size, name, strides=1, activation: Activation = "relu", **options: Any):
        x = convolution(x, filters, kernel_size, strides, activation, frozen_norm=frozen_norm, name=name, **options)
        return x if activation is None or not learnable_affine else LearnableAffine(name=f"{name}_affine")(x)

    def block(x, stage, is_residual, name):
        found = [x]
        for index in range(stage.num_layers):
            path = f"{name}_{index}"
            if stage.is_light:
                y = layer(found[-1], stage.inner_dim, 1, f"{path}_point", activation=None)
                found.append(layer(y, stage.inner_dim, stage.kernel_size, path, depthwise=True))
            else:
                found.append(layer(found[-1], stage.inner_dim, stage.kernel_size, path))
        y = keras.layers.Concatenate(name=f"{name}_all")(found)
        y = layer(y, stage.hidden_dim // 2, 1, f"{name}_squeeze")
        y = layer(y, stage.hidden_dim, 1, f"{name}_excitation")
        return keras.layers.Add(name=f"{name}_sum")([x, y]) if is_residual else y

    images = image_input(image_size, num_channels)
    x = _stem(images, size.stem_dims, layer, activation)
    for index, stage in enumerate(size.stages):
        if stage.strides is not None:
            width, path = x.shape[-1], f"stage_{index}_downsampling"
            x = layer(x, width, 3, path, stage.strides, None, depthwise=True)
        for number in range(stage.num_blocks):
            x = block(x, stage, number > 0, f"stage_{index}_block_{number}")
        x = keras.layers.Identity(name=f"{PREFIX}{index}")(x)
    return keras.Model(images, keras.layers.Reshape((-1, x.shape[-1]), name="tokens")(x), name=name)


def _stem(images: Tensor, dims: tuple[int, int], layer: keras.layers.Layer, activation: Activation) -> Tensor:
    """A quarter of rows and columns, by two branches: two convolutions, and a maximum."""
    inner, outer = dims

    def padded(x, name):  # Even kernels see a row and a column of zeros behind the last one.
        return keras.layers.ZeroPadding2D(((0, 1), (0, 1)), name=f"{name}_padding")(x)

    x = padded(layer(images, inner, 3, "stem_0", 2, activation), "stem_1")
    y = layer(x, inner // 2, 2, "stem_1", activation=activation)
    y = layer(padded(y, "stem_2"), inner, 2, "stem_2", activation=activation)
    pooled = keras.layers.MaxPooling2D(2, 1, name="stem_pooling")(x)
    x = keras.layers.Concatenate(name="stem_branches")([pooled, y])
    x = layer(x, inner, 3, "stem_3", 2, activation)
    return layer(x, outer, 1, "stem_4", activation=activation)
