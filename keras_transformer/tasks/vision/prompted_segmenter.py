"""Segmentation of what points, boxes and masks select."""

from __future__ import annotations

from typing import NamedTuple

import keras
from keras import ops

from keras_transformer.attention import MultiHeadAttention
from keras_transformer.blocks import TwoWayBlock
from keras_transformer.feedforward import DenseFeedForward
from keras_transformer.layers.norms import LayerNormalization
from keras_transformer.tasks.heads import check_backbone, check_count
from keras_transformer.tasks.vision.prompted_segmentation_model import DECODER, PromptedSegmentationModel
from keras_transformer.utils.types import Activation
from keras_transformer.vision import (
    FoldPrompts,
    GridCenters,
    MaskEmbedding,
    OutputTokens,
    PointEmbedding,
    PointMask,
    RandomFourierPositions,
    UnfoldPrompts,
)

# Of the norm after the last attention and of that between the transposed convolutions, whatever the blocks have.
_LAST_EPSILON, _UPSCALING_EPSILON = 1e-5, 1e-6


class MaskDecoderSize(NamedTuple):
    """Size of the mask decoder of SAM; its width is that of the feature map.

    Attributes:
        num_layers: int: number of two-way blocks.
        num_heads: int: number of attention heads.
        intermediate_dim: int: hidden width of the feed-forward of the blocks.
        attention_reduction: int: how much narrower than the feature map attention between tokens and image is, in blocks.
        last_attention_reduction: int: likewise of the attention after the blocks.
        score_layers: int >= 2: dense layers of the head of the scores.
        score_dim: int: width of their hidden layers.

    Example:

    >>> MaskDecoderSize(num_heads=4).attention_reduction
    2
    """

    num_layers: int = 2
    num_heads: int = 8
    intermediate_dim: int = 2048
    attention_reduction: int = 2
    last_attention_reduction: int = 2
    score_layers: int = 3
    score_dim: int = 256


def PromptedSegmenter(
    backbone: keras.Model,
    num_masks: int = 3,
    size: MaskDecoderSize | None = None,
    *,
    mask_embedding: MaskEmbedding | None = None,
    activation: Activation = "relu",
    layer_norm_epsilon: float = 1e-6,
    name: str = "prompted_segmenter",
) -> PromptedSegmentationModel:
    """Prompted segmenter: SAM's prompt encoder and mask decoder on an image encoder.

    `segment` finds what points, boxes or a rough mask select in an image. `encode` computes the features of an image once,
    for any number of prompts. Its parts `image_encoder` and `prompt_decoder` are models of their own, to be exported.

    Args:
        backbone: `keras.Model` of images of a fixed size with one feature map `(B, rows, columns, C)`, such as `models.SAM`.
        num_masks: int >= 1. M. Masks that an ambiguous prompt may mean, in addition to the one mask of a clear prompt.
        size: `MaskDecoderSize`, or None for that of the paper.
        mask_embedding: `vision.MaskEmbedding` to copy, or None for that of the paper.
        activation: activation of the feed-forward of the blocks.
        layer_norm_epsilon: float > 0. Of the norms of the two-way blocks; the last norm has 1e-5, and that between the
            transposed convolutions 1e-6.
        name: str.

    Returns:
        `PromptedSegmentationModel`: {"images": float `(B, height, width, channels)`, "prompt_points": float `(B, P, N, 2)`,
        x and y of N points of P prompts in pixels, "prompt_labels": int32 `(B, P, N)`, see `vision.PointEmbedding`,
        "prompt_masks": float `(B, P, 4 rows, 4 columns)`, "prompt_has_mask": bool `(B, P)`} to {"masks": logits
        `(B, P, 1 + M, 4 rows, 4 columns)`, "scores": `(B, P, 1 + M)`}, float32 under every dtype policy. The scores
        estimate the intersection over union. The first mask is that of a clear prompt, the others are the meanings of an
        ambiguous one.

    Raises:
        ValueError: a number below 1; a backbone without one feature map of a fixed size; a width that is not a multiple of
            8, or that the heads do not divide.

    Example:

    >>> from keras_transformer import models
    >>> backbone = models.SAM(models.SAMSize(1, 8, 2, 16, (0,)), patch_size=4, image_size=12, output_dim=16)
    >>> model = PromptedSegmenter(backbone, 2, MaskDecoderSize(1, 2, 24))
    >>> {name: tensor.shape[2:] for name, tensor in model.output.items()}
    {'masks': (3, 12, 12), 'scores': (3,)}

    Reference: Kirillov et al., Segment Anything, arXiv 2304.02643, section 3 and appendix A. Padding of prompts with fewer
    points than others has no influence, where transformers attends to vectors of zeros. Each prompt may have a mask of its
    own.
    """
    size = MaskDecoderSize() if size is None else MaskDecoderSize(*size)
    check_count("num_masks", num_masks)
    _check(backbone, size)
    decoder = _decoder(backbone, num_masks, size, mask_embedding or MaskEmbedding(), activation, layer_norm_epsilon)
    prompts = {each: keras.Input(tensor.shape[1:], dtype=tensor.dtype, name=each) for each, tensor in _prompts(decoder)}
    images = keras.Input(backbone.input.shape[1:], name="images")
    outputs = decoder({"features": backbone(images), **prompts})
    return PromptedSegmentationModel({"images": images, **prompts}, outputs, name=name)


def _check(backbone, size):
    check_backbone(backbone)
    for field, count in size._asdict().items():
        check_count(field, count)
    if size.score_layers < 2:
        raise ValueError(f"score_layers must be at least 2. Received: {size.score_layers}")
    shape = getattr(backbone.output, "shape", ())
    image_shape = getattr(backbone.input, "shape", ())
    if len(shape) != 4 or len(image_shape) != 4 or None in (*shape[1:], *image_shape[1:]):
        raise ValueError(
            f"{backbone.name!r} must have images of a fixed size as its only input, and one feature map "
            f"(B, rows, columns, C). Its input: {backbone.input!r}. Its output: {backbone.output!r}"
        )
    width = shape[-1]
    reductions = size.attention_reduction, size.last_attention_reduction
    if width % 8 or any(width % (size.num_heads * reduction) for reduction in reductions):
        raise ValueError(
            "The width of the feature map must be a multiple of 8, and of num_heads times both reductions. Received: "
            f"{width} and {size}"
        )


def _prompts(decoder):
    return ((each, tensor) for each, tensor in decoder.input.items() if each != "features")


def _decoder(backbone, num_masks, size, mask_embedding, activation, epsilon):
    """The model from the feature map of an image and its prompts to masks and scores."""
    (rows, columns, width), (height, pixels_across) = backbone.output.shape[1:], backbone.input.shape[1:3]
    inputs = {
        "features": keras.Input((rows, columns, width), name="features"),
        "prompt_points": keras.Input((None, None, 2), name="prompt_points"),
        "prompt_labels": keras.Input((None, None), dtype="int32", name="prompt_labels"),
        "prompt_masks": keras.Input((None, 4 * rows, 4 * columns), name="prompt_masks"),
        "prompt_has_mask": keras.Input((None,), dtype="bool", name="prompt_has_mask"),
    }
    # From here on, each prompt is a row of the batch.
    points = FoldPrompts(name="fold_points")(inputs["prompt_points"])
    labels = FoldPrompts(name="fold_labels")(inputs["prompt_labels"])
    fourier = RandomFourierPositions(width, name="positions")
    # The center of a pixel is half a pixel from its corner.
    placed = fourier((points + 0.5) / ops.convert_to_tensor([pixels_across, height], dtype="float32"))
    tokens = PointEmbedding(name="point_embedding")(placed, labels)
    num_tokens = 2 + num_masks
    tokens = OutputTokens(num_tokens, name="output_tokens")(tokens)
    mask = PointMask(num_tokens, name="point_mask")(labels)
    image = mask_embedding.from_config({**mask_embedding.get_config(), "name": "mask_embedding"})(
        inputs["features"], inputs["prompt_masks"], inputs["prompt_has_mask"]
    )
    image_positions = fourier(GridCenters(name="grid_centers")(inputs["features"]))
    x, image = _transformer(tokens, image, image_positions, mask, size, activation, epsilon)
    scores = _dense_stack(x[:, 0], "score", size.score_layers, size.score_dim, 1 + num_masks)
    kernels = [_dense_stack(x[:, 1 + index], f"kernel_{index}", 3, width, width // 8) for index in range(1 + num_masks)]
    pixels = _upscaled(keras.layers.Reshape((rows, columns, width), name="image_grid")(image), width)
    pixels = keras.layers.Reshape((16 * rows * columns, width // 8), name="pixels")(pixels)
    masks = ops.matmul(ops.stack(kernels, axis=1), ops.transpose(pixels, (0, 2, 1)))
    masks = keras.layers.Reshape((1 + num_masks, 4 * rows, 4 * columns), name="mask_grid")(masks)
    outputs = {
        each: UnfoldPrompts(dtype="float32", name=each)(x, inputs["prompt_labels"])
        for each, x in (("masks", masks), ("scores", scores))
    }
    return keras.Model(inputs, outputs, name=DECODER)


def _transformer(tokens, image, image_positions, mask, size, activation, epsilon):
    """Tokens and image after the two-way blocks and a last attention of the tokens to the image."""
    width = tokens.shape[-1]

    def attention(name, reduction):
        return MultiHeadAttention(size.num_heads, width // reduction // size.num_heads, name=name)

    x = tokens
    for index in range(size.num_layers):
        block = TwoWayBlock(
            attention("self_attention", 1),
            attention("cross_attention", size.attention_reduction),
            DenseFeedForward(size.intermediate_dim, activation, name="feedforward"),
            attention("image_attention", size.attention_reduction),
            norm=LayerNormalization(epsilon=epsilon),
            is_first=index == 0,
            name=f"two_way_block_{index}",
        )
        x, image = block(x, image, tokens, image_positions, mask)
    last = attention("last_attention", size.last_attention_reduction)
    x = x + last(x + tokens, image, image + image_positions)
    return LayerNormalization(epsilon=_LAST_EPSILON, name="last_norm")(x), image


def _dense_stack(x, name, num_layers, hidden_dim, units):
    for index in range(num_layers - 1):
        x = keras.layers.Dense(hidden_dim, activation="relu", name=f"{name}_hidden_{index}")(x)
    return keras.layers.Dense(units, name=f"{name}_output")(x)


def _upscaled(x, width):
    """The image in four times its rows and columns, with an eighth of its channels."""
    x = keras.layers.Conv2DTranspose(width // 4, 2, strides=2, name="upscaling_0")(x)
    x = LayerNormalization(epsilon=_UPSCALING_EPSILON, name="upscaling_norm")(x)
    x = keras.layers.Activation("gelu", name="upscaling_activation_0")(x)
    x = keras.layers.Conv2DTranspose(width // 8, 2, strides=2, name="upscaling_1")(x)
    return keras.layers.Activation("gelu", name="upscaling_activation_1")(x)
