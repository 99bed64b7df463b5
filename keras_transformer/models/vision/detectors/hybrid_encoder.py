"""The hybrid encoder of RT-DETR: attention within the smallest feature map, convolutions between all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import keras

from keras_transformer.attention import PositionedAttention
from keras_transformer.blocks import EncoderBlock
from keras_transformer.feedforward import DenseFeedForward
from keras_transformer.layers.norms import LayerNormalization
from keras_transformer.models.building.convolution import activated, convolution
from keras_transformer.utils.types import Activation, Tensor
from keras_transformer.vision import SinusoidalGrid, ToGrid, UpsampleLike


class HybridEncoderSize(NamedTuple):
    """Size of a hybrid encoder, and its parts.

    Attributes:
        hidden_dim: int, a multiple of 4: channels of all feature maps.
        num_layers: int. Number of blocks of attention.
        num_heads: int.
        intermediate_dim: int. Hidden width of the feed-forward.
        expansion: float. Channels inside the stages of convolutions, as a multiple of `hidden_dim`.
        levels: tuple of ints: the feature maps whose pixels attend to one another, 0 for the largest.
        depth: int. Number of convolution blocks of a stage.
        activations: pair: of the convolutions, and of the feed-forward.
        max_wavelength: float. Of the positions.

    Example:

    >>> HybridEncoderSize(hidden_dim=384).num_heads
    8
    """

    hidden_dim: int = 256
    num_layers: int = 1
    num_heads: int = 8
    intermediate_dim: int = 1024
    expansion: float = 1.0
    levels: tuple[int, ...] = (2,)
    depth: int = 3
    activations: tuple[Activation, Activation] = ("silu", "gelu")
    max_wavelength: float = 10000.0


class Convolutions(NamedTuple):
    """The three kinds of steps between feature maps, each a function of `(x, name)`, for `fuse`.

    Attributes:
        lateral: before a map is enlarged.
        downsampling: halves rows and columns.
        fusion: of two maps, concatenated, to one.
    """

    lateral: Callable[[Tensor, str], Tensor]
    downsampling: Callable[[Tensor, str], Tensor]
    fusion: Callable[[Tensor, str], Tensor]


def attend_within(
    maps: list[Tensor],
    size: HybridEncoderSize,
    *,
    dropout: float = 0.0,
    hidden_dropout: float = 0.0,
    layer_norm_epsilon: float = 1e-5,
) -> list[Tensor]:
    """AIFI: the pixels of the maps in `levels` attend to those of the same map. Symbolic maps in, symbolic maps out."""
    maps = list(maps)
    for number, level in enumerate(size.levels):
        grid = maps[level]
        positions = SinusoidalGrid(size.hidden_dim, size.max_wavelength, name=f"positions_{number}")(grid)
        x = keras.layers.Reshape((-1, size.hidden_dim), name=f"tokens_{number}")(grid)
        for index in range(size.num_layers):
            mixer = PositionedAttention(
                size.num_heads, size.hidden_dim // size.num_heads, dropout=dropout, name="self_attention"
            )
            feedforward = DenseFeedForward(
                size.intermediate_dim, size.activations[1], hidden_dropout, name="feedforward"
            )
            norm = LayerNormalization(epsilon=layer_norm_epsilon)
            name = f"encoder_block_{number}_{index}"
            block = EncoderBlock(mixer, feedforward, residual="post", norm=norm, dropout=dropout, name=name)
            x = block(x, positions=positions)
        maps[level] = ToGrid(name=f"grid_{number}")(x, grid)
    return maps


def fuse(maps: list[Tensor], steps: Convolutions) -> list[Tensor]:
    """CCFM: information flows from the smallest map to the largest, then back. Symbolic maps in, symbolic maps out."""
    maps = list(maps)
    count = len(maps) - 1
    for number in range(count):
        level = count - number
        maps[level] = steps.lateral(maps[level], f"lateral_{number}")
        larger = UpsampleLike(name=f"upsampling_{number}")(maps[level], maps[level - 1])
        both = keras.layers.Concatenate(name=f"top_down_{number}_inputs")([larger, maps[level - 1]])
        maps[level - 1] = steps.fusion(both, f"top_down_{number}")
    for number in range(count):
        smaller = steps.downsampling(maps[number], f"downsampling_{number}")
        both = keras.layers.Concatenate(name=f"bottom_up_{number}_inputs")([smaller, maps[number + 1]])
        maps[number + 1] = steps.fusion(both, f"bottom_up_{number}")
    return maps


def csp_stage(
    x: Tensor, filters: int, hidden: int, depth: int, activation: Activation, epsilon: float, name: str
) -> Tensor:
    """A cross stage partial network: RepVGG blocks beside a 1 x 1 convolution, added, and projected if widths differ.

    Args:
        x: symbolic `(B, rows, columns, channels)`.
        filters: int. Channels of the output.
        hidden: int. Channels inside.
        depth: int. Number of blocks.
        activation: of all convolutions.
        epsilon: float > 0. Of the batch norms.
        name: str.

    Returns:
        Symbolic `(B, rows, columns, filters)`.

    Reference: Wang et al., CSPNet, arXiv 1911.11929; Ding et al., RepVGG, arXiv 2101.03697, without the branch of the
    identity.
    """
    y = convolution(x, hidden, 1, 1, activation, epsilon=epsilon, name=f"{name}_main")
    for index in range(depth):
        block = f"{name}_block_{index}"
        branches = [
            convolution(y, hidden, kernel_size, epsilon=epsilon, name=f"{block}_{part}")
            for part, kernel_size in (("wide", 3), ("narrow", 1))
        ]
        y = activated(keras.layers.Add(name=f"{block}_sum")(branches), activation, f"{block}_activation")
    skip = convolution(x, hidden, 1, 1, activation, epsilon=epsilon, name=f"{name}_skip")
    y = keras.layers.Add(name=f"{name}_sum")([y, skip])
    return y if hidden == filters else convolution(y, filters, 1, 1, activation, epsilon=epsilon, name=f"{name}_output")
