"""The Swin Transformer."""

from __future__ import annotations

from typing import NamedTuple

import keras
import numpy as np

from keras_transformer.attention.layers.spatial.shifted_window_attention import ShiftedWindowAttention
from keras_transformer.blocks import EncoderBlock, PreNormResidual
from keras_transformer.feedforward import DenseFeedForward
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.norms import LayerNormalization
from keras_transformer.models.building.image_stack import image_input
from keras_transformer.positions import Learned
from keras_transformer.utils.serialization import choice
from keras_transformer.utils.types import Activation
from keras_transformer.vision import PatchMerging
from keras_transformer.vision.patches.patch_embedding import pair_of
from keras_transformer.vision.patches.patch_merging import halved


class SwinSize(NamedTuple):
    """Size of a hierarchical stack.

    Attributes:
        hidden_dim: width of the tokens in the first stage; each stage doubles it.
        num_layers: tuple of ints: number of blocks of each stage.
        num_heads: tuple of ints: number of attention heads of each stage.

    Example:

    >>> SwinSize(hidden_dim=8, num_layers=(2, 1), num_heads=(2, 4)).num_layers
    (2, 1)
    """

    hidden_dim: int
    num_layers: tuple[int, ...]
    num_heads: tuple[int, ...]


# Liu et al., arXiv 2103.14030, section 3.3.
SIZES = {
    "T": SwinSize(96, (2, 2, 6, 2), (3, 6, 12, 24)),
    "S": SwinSize(96, (2, 2, 18, 2), (3, 6, 12, 24)),
    "B": SwinSize(128, (2, 2, 18, 2), (4, 8, 16, 32)),
    "L": SwinSize(192, (2, 2, 18, 2), (6, 12, 24, 48)),
}


def Swin(
    size: str | SwinSize = "T",
    patch_size: int | tuple[int, int] = 4,
    image_size: int | tuple[int, int] = 224,
    *,
    num_channels: int = 3,
    window_size: int = 7,
    mlp_ratio: float = 4.0,
    activation: Activation = "gelu",
    dropout: float = 0.0,
    attention_dropout: float = 0.0,
    stochastic_depth: float = 0.1,
    layer_norm_epsilon: float = 1e-5,
    use_position_embedding: bool = False,
    name: str = "swin",
) -> keras.Model:
    """The Swin Transformer without its head: window attention, shifted in every other block. Each stage halves rows and
    columns. `tasks.ImageClassifier(pooling="mean")` adds a head.

    Args:
        size: "T", "S", "B", "L", or a `SwinSize`.
        patch_size: int or pair of ints. Pixels.
        image_size: int or pair of ints. Pixels; images that do not divide into patches, and grids that do not divide
            into windows, are padded with zeros.
        num_channels: int.
        window_size: int. Rows and columns of a window, in tokens.
        mlp_ratio: float. Ratio of the hidden width of the feed-forward to the width of the tokens.
        activation: activation of the feed-forward.
        dropout: float in [0, 1). Of the embedded patches, and of the outputs of attention and feed-forward.
        attention_dropout: float in [0, 1). Of the attention weights.
        stochastic_depth: float in [0, 1). Rate of stochastic depth of the last block, in training; it increases linearly
            from 0 at the first.
        layer_norm_epsilon: float. Of the norms of the blocks and the final norm; the others have 1e-5.
        use_position_embedding: bool. Whether a learned vector for each patch is added to the normalized patches. Its table
            is for one image size.
        name: str.

    Returns:
        `keras.Model`: "images", float `(B, height, width, channels)`, to the tokens of the last stage,
        `(B, rows · columns, 8 · hidden_dim)`.

    Raises:
        ValueError: unknown size; heads that do not divide the width; `num_heads` and `num_layers` of different lengths.

    Example:

    >>> Swin(SwinSize(8, (2, 1), (2, 4)), patch_size=2, image_size=12, window_size=3).output_shape
    (None, 9, 16)

    Reference: Liu et al., Swin Transformer: Hierarchical Vision Transformer using Shifted Windows, arXiv 2103.14030. There
    is no position embedding by default, as in the paper; section 4.4, table 4 compares.
    """
    size = choice(size, SIZES, argument="size") if isinstance(size, str) else SwinSize(*size)
    _check(size)
    norm = LayerNormalization(epsilon=layer_norm_epsilon)
    blocks = _Blocks(norm, window_size, mlp_ratio, activation, dropout, attention_dropout)
    rates = iter(np.linspace(0.0, stochastic_depth, sum(size.num_layers)).tolist())
    images = image_input(image_size, num_channels)
    x, grid = _embedded(images, size.hidden_dim, pair_of(patch_size), use_position_embedding, dropout)
    for stage, (num_layers, num_heads) in enumerate(zip(size.num_layers, size.num_heads, strict=True)):
        if stage:
            x = PatchMerging(grid, name=f"patch_merging_{stage}")(x)
            grid = (halved(grid[0]), halved(grid[1]))
        width = size.hidden_dim * 2**stage
        for index in range(num_layers):
            heads = (num_heads, width // num_heads)
            x = blocks.block(index, heads, grid, next(rates), f"stage_{stage}_block_{index}")(x)
    x = LayerNormalization(epsilon=layer_norm_epsilon, name="final_norm")(x)
    return keras.Model(images, x, name=name)


def _check(size: SwinSize) -> None:
    if len(size.num_layers) != len(size.num_heads) or any(
        size.hidden_dim * 2**stage % heads for stage, heads in enumerate(size.num_heads)
    ):
        raise ValueError(f"num_heads must divide the width of each stage. Received: {size}")


class _Blocks(NamedTuple):
    """What the blocks of all stages are made of."""

    norm: keras.layers.Layer
    window_size: int
    mlp_ratio: float
    activation: Activation
    dropout: float
    attention_dropout: float

    def block(
        self, index: int, heads: tuple[int, int], grid: tuple[int, int], stochastic_depth: float, name: str
    ) -> EncoderBlock:
        """Returns a new block; windows are shifted if its index in the stage is odd.

        Args:
            index: int: its number in the stage.
            heads: number and width of the heads.
            grid: rows and columns of tokens.
            stochastic_depth: float in [0, 1).
            name: str.
        """
        mixer = ShiftedWindowAttention(
            *heads,
            grid,
            self.window_size,
            shifted=index % 2 == 1,
            dropout=self.attention_dropout,
            name="window_attention",
        )
        width = heads[0] * heads[1]
        return EncoderBlock(
            mixer,
            DenseFeedForward(int(self.mlp_ratio * width), self.activation, name="feedforward"),
            residual=PreNormResidual(self.norm, stochastic_depth),
            dropout=self.dropout,
            name=name,
        )


def _embedded(images, hidden_dim, patch_size, use_position_embedding, dropout):
    """The tokens of the patches, normalized, with positions if requested, and their rows and columns."""
    missing = [-side % patch for side, patch in zip(images.shape[1:3], patch_size, strict=True)]
    x = (
        keras.layers.ZeroPadding2D(((0, missing[0]), (0, missing[1])), name="padding")(images)
        if any(missing)
        else images
    )
    x = keras.layers.Conv2D(hidden_dim, patch_size, strides=patch_size, name="patch_projection")(x)
    grid = x.shape[1:3]
    x = keras.layers.Reshape((grid[0] * grid[1], hidden_dim), name="patches")(x)
    x = LayerNormalization(epsilon=1e-5, name="embedding_norm")(x)
    if use_position_embedding:
        x = Learned(grid[0] * grid[1], name="position_embedding")(x)
    return Dropout(dropout, name="embedding_dropout")(x), grid
