"""Qwen2.5-VL: a decoder of text with images of any size in it."""

from __future__ import annotations

from collections.abc import Sequence

import keras

from keras_transformer.blocks import DecoderBlock
from keras_transformer.feedforward import GatedFeedForward
from keras_transformer.layers.norms import RMSNormalization
from keras_transformer.models.building.rotary_attention import GroupedSize, get_grouped_size, rotary_attention
from keras_transformer.models.building.size import Size
from keras_transformer.models.building.stack import make_attention, make_norm, of_block, padding_input, token_input
from keras_transformer.models.multimodal.qwen2_5_vl_vision import Qwen2_5VLVision
from keras_transformer.models.text.decoders.qwen2 import SIZES as QWEN2_SIZES
from keras_transformer.models.text.decoders.qwen2 import vocabulary_of
from keras_transformer.positions import MultimodalRotary
from keras_transformer.utils.types import Activation, AttentionLike
from keras_transformer.vision import EachImage, FillImages, ImagePositions, UnrollWindows, WindowCoordinates

# Bai et al., arXiv 2502.13923, table 1: the decoders of Qwen2.5.
SIZES: dict[str, GroupedSize] = {name: QWEN2_SIZES[name] for name in ("3B", "7B", "72B")}


def Qwen2_5VL(
    size: str | Size = "7B",
    vocabulary_size: int | None = None,
    vision: keras.Model | None = None,
    *,
    image_id: int = 151655,
    num_key_value_heads: int | None = None,
    window: int | Sequence[int | None] | None = None,
    position: MultimodalRotary | None = None,
    activation: Activation = "silu",
    attention_dropout: float = 0.0,
    rms_norm_epsilon: float = 1e-6,
    name: str = "qwen2_5_vl",
) -> keras.Model:
    """The decoder of Qwen2.5-VL: that of Qwen2.5, with tokens of images in place of some of its own, for still images.

    The tokens of an image have positions of rows and columns (`vision.ImagePositions`), in generation too.
    `tasks.LanguageModel` adds the head; its `generate({"patches": ..., "patch_grid": ..., "token_ids": prompts})` answers
    prompts.

    Args:
        size: "3B", "7B", "72B", or a `Size`: of the text model.
        vocabulary_size: int or None. V. None: 152064 for "7B" and "72B", else 151936.
        vision: `keras.Model` as of `models.Qwen2_5VLVision`, with the width of the text model; None for that of the named
            size. Its layers are used, not copied.
        image_id: int: the token that stands for each token of an image.
        num_key_value_heads: int or None. Number of key/value heads, a divisor of the number of heads. None: that of the
            named size, or the number of heads.
        window: int or None, or a list of these that repeats over the blocks. Sliding window: the number of tokens that
            a token attends to, itself included; None for all previous tokens.
        position: `positions.MultimodalRotary` of three axes, or None for rates of `max_wavelength=1e6`.
        activation: activation of the gate.
        attention_dropout: float in [0, 1). Of the attention weights.
        rms_norm_epsilon: float > 0. Of every norm of the decoder.
        name: str.

    Returns:
        `keras.Model`: {"patches": float `(B, I, W, S, F)`, padded to I images per row and W windows per image, "patch_grid":
        int32 `(B, I, 2)`, rows and columns of patches of each image, zeros for none, "token_ids": int32 `(B, T)` with
        `image_id` for each token of an image in order, "padding_mask": bool `(B, T)`} to `(B, T, D)`.

    Raises:
        ValueError: unknown size name; `vision` that is no tower of windows, or has another width than the decoder.

    Example:

    >>> vision = Qwen2_5VLVision(Size(1, 8, 2, 12), 16, patch_dim=24, window_size=1, full_attention_blocks=[])
    >>> model = Qwen2_5VL(Size(2, 16, 2, 32), 100, vision, image_id=5, num_key_value_heads=1)
    >>> [(name, tensor.shape) for name, tensor in model.input.items()][:2]
    [('patches', (None, None, None, 4, 24)), ('patch_grid', (None, None, 2))]

    Reference: Bai et al., Qwen2.5-VL, arXiv 2502.13923, section 2.1; Wang et al., Qwen2-VL, arXiv 2409.12191, section 2.1.
    Videos, which have further positions of time, are not supported.
    """
    grouped = get_grouped_size(size, SIZES, num_key_value_heads)
    tower: keras.Model = Qwen2_5VLVision(size) if vision is None and isinstance(size, str) else vision
    coordinates = _coordinates(tower, grouped.size.hidden_dim)
    vocabulary_size = vocabulary_size or vocabulary_of(size)
    size, norm = grouped.size, RMSNormalization(epsilon=rms_norm_epsilon)
    # Layers
    attention = rotary_attention(
        grouped,
        position or MultimodalRotary(max_wavelength=1e6),
        window=window,
        dropout=attention_dropout,
        use_bias=True,
        use_output_bias=False,
    )
    blocks = _blocks(size, attention, activation, norm)
    # Graph
    inputs = _inputs(tower)
    of_tokens = inputs["patch_grid"] // coordinates.merge_size
    images = EachImage(tower, name="image_tokens")({name: inputs[name] for name in ("patches", "patch_grid")})
    images = UnrollWindows(coordinates.window_size, name="ordered_tokens")(images, of_tokens)
    x = keras.layers.ReversibleEmbedding(vocabulary_size, size.hidden_dim, name="token_embedding")(inputs["token_ids"])
    x = FillImages(image_id, name="fill_images")(x, inputs["token_ids"], encoder_output=images)
    positions = ImagePositions(image_id, name="image_positions")(inputs["token_ids"], encoder_output=of_tokens)
    for block in blocks:
        x = block(x, padding_mask=inputs["padding_mask"], positions=positions)
    return keras.Model(inputs, make_norm(norm, "final_norm")(x), name=name)


def _inputs(tower: keras.Model) -> dict[str, keras.KerasTensor]:
    """The symbolic inputs by name."""
    return {
        "patches": keras.Input((None, *tower.input["patches"].shape[1:]), name="patches"),
        "patch_grid": keras.Input((None, 2), dtype="int32", name="patch_grid"),
        "token_ids": token_input(),
        "padding_mask": padding_input(),
    }


def _blocks(
    size: Size, attention: AttentionLike, activation: Activation, norm: keras.layers.Layer
) -> list[DecoderBlock]:
    return [
        DecoderBlock(
            make_attention(size, of_block(attention, index)),
            GatedFeedForward(size.intermediate_dim, activation, name="feedforward"),
            norm=norm,
            name=f"decoder_block_{index}",
        )
        for index in range(size.num_layers)
    ]


def _coordinates(tower: keras.Model | None, width: int) -> WindowCoordinates:
    """Returns the layer of a tower that knows its windows."""
    layers = [] if tower is None else tower.layers
    found = next((layer for layer in layers if isinstance(layer, WindowCoordinates)), None)
    if tower is None or found is None:
        raise ValueError(
            "vision must be a tower of windows, such as models.Qwen2_5VLVision, for a size that has no name."
        )
    if tower.output.shape[-1] != width:
        raise ValueError(f"{tower.name!r} must have tokens of width {width}. Its output: {tower.output.shape}")
    return found
