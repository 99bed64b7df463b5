"""The image tower of Qwen2.5-VL."""

from __future__ import annotations

from collections.abc import Sequence

import keras

from keras_transformer.attention import MultiHeadAttention
from keras_transformer.attention.arguments import positive
from keras_transformer.blocks import EncoderBlock
from keras_transformer.feedforward import GatedFeedForward
from keras_transformer.layers.norms import RMSNormalization
from keras_transformer.models.building.size import Size, get_size
from keras_transformer.models.building.stack import make_norm
from keras_transformer.positions import MultimodalRotary
from keras_transformer.utils.types import Activation
from keras_transformer.vision import FoldWindows, UnfoldWindows, WindowCoordinates

# Bai et al., arXiv 2502.13923, table 1, as published: one tower for all sizes of the model.
SIZES = {name: Size(32, 1280, 16, 3456 if name == "72B" else 3420) for name in ("3B", "7B", "72B")}
_OUTPUT_DIMS = {"3B": 2048, "7B": 3584, "72B": 8192}
# Fixed in the published code.
_EPSILON = 1e-6


def Qwen2_5VLVision(
    size: str | Size = "7B",
    output_dim: int | None = None,
    *,
    patch_dim: int = 2 * 3 * 14 * 14,
    merge_size: int = 2,
    window_size: int = 4,
    full_attention_blocks: Sequence[int] = (7, 15, 23, 31),
    activation: Activation = "silu",
    max_wavelength: float = 10000.0,
    name: str = "qwen2_5_vl_vision",
) -> keras.Model:
    """The image tower of Qwen2.5-VL for images of any size, with attention in windows.

    Patches come in windows (`vision.DynamicResolutionProcessor` arranges them), and attend within their window, or in a few
    blocks to the whole image. Then each group of neighboring patches becomes one token. Time and memory of a block with
    windows grow with the number of patches.

    Args:
        size: "3B", "7B", "72B", which differ in what reads the tokens, or a `Size`.
        output_dim: int. Width of the tokens D_out. None: that of the named size, or the width of the `Size`.
        patch_dim: int. Numbers of a patch F: frames, channels, rows and columns, 2 · 3 · 14 · 14 by default. Of an image,
            both frames are the same.
        merge_size: int >= 1. Rows and columns of patches in a token.
        window_size: int >= 1. Rows and columns of tokens in a window.
        full_attention_blocks: ints: the blocks, from 0, that attend to the whole image.
        activation: activation of the gate.
        max_wavelength: float > 0. Of the positions: see `MultimodalRotary`.
        name: str.

    Returns:
        `keras.Model`: {"patches": float `(B, W, S, F)`, W windows of S = `(merge_size · window_size)²` patches,
        "patch_grid": int32 `(B, 2)`, rows and columns of patches of each image} to `(B, W · window_size², D_out)`, in the
        order of the windows: `vision.UnrollWindows` changes it. Padding has tokens too.

    Raises:
        ValueError: unknown size; heads whose features are no multiple of 4; a block that is not there.

    Example:

    >>> model = Qwen2_5VLVision(Size(2, 8, 2, 12), 6, patch_dim=24, window_size=3, full_attention_blocks=[1])
    >>> model.output_shape
    (None, None, 6)

    Reference: Bai et al., Qwen2.5-VL, arXiv 2502.13923, section 2.1.1.
    """
    output_dim = output_dim or _OUTPUT_DIMS.get(size if isinstance(size, str) else "")
    size = get_size(size, SIZES)
    if not set(full_attention_blocks) <= set(range(size.num_layers)):
        raise ValueError(
            f"full_attention_blocks must be in [0, {size.num_layers}). Received: {list(full_attention_blocks)}"
        )
    width, group = size.hidden_dim, positive("merge_size", merge_size) ** 2
    length = positive("window_size", window_size) ** 2 * group
    # Layers
    fold, norm = FoldWindows(length, name="fold_windows"), RMSNormalization(epsilon=_EPSILON)
    quarter = width // size.num_heads // 4
    position = MultimodalRotary((quarter, quarter), max_wavelength, restarts_rates=True)
    # Graph
    patches = keras.Input((None, length, patch_dim), name="patches")
    grid = keras.Input((2,), dtype="int32", name="patch_grid")
    positions, mask = WindowCoordinates(window_size, merge_size, name="coordinates")(patches, grid)
    of_windows = {"positions": fold(positions), "padding_mask": fold(mask)}
    of_images = {"positions": positions, "padding_mask": mask}
    x = fold(keras.layers.Dense(width, use_bias=False, name="patch_embedding")(patches))
    for index in range(size.num_layers):
        block = _block(index, size, position, activation, norm)
        if index in full_attention_blocks:
            x = fold(block(UnfoldWindows(name=f"unfold_windows_{index}")(x, like=grid), **of_images))
        else:
            x = block(x, **of_windows)
    x = _merged(make_norm(norm, "merger_norm")(x), window_size**2, group * width, output_dim or width)
    x = UnfoldWindows(name="unfold_tokens")(x, like=grid)
    return keras.Model({"patches": patches, "patch_grid": grid}, x, name=name)


def _block(
    index: int, size: Size, position: MultimodalRotary, activation: Activation, norm: keras.layers.Layer
) -> EncoderBlock:
    return EncoderBlock(
        MultiHeadAttention(size.num_heads, size.hidden_dim // size.num_heads, position=position, name="self_attention"),
        GatedFeedForward(size.intermediate_dim, activation, use_bias=True, name="feedforward"),
        norm=norm,
        residual="pre",
        name=f"image_encoder_block_{index}",
    )


def _merged(x: keras.KerasTensor, num_tokens: int, merged_dim: int, output_dim: int) -> keras.KerasTensor:
    """The tokens of windows, each of a group of neighboring patches."""
    x = keras.layers.Reshape((num_tokens, merged_dim), name="merge_patches")(x)
    x = keras.layers.Dense(merged_dim, activation="gelu", name="merger_hidden")(x)
    return keras.layers.Dense(output_dim, name="merger_output")(x)
