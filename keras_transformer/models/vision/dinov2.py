"""DINOv2."""

from __future__ import annotations

import keras

from keras_transformer.blocks import LayerScaleResidual
from keras_transformer.feedforward import GatedFeedForward
from keras_transformer.layers.norms import LayerNormalization
from keras_transformer.models.building.size import Size, get_size
from keras_transformer.models.vision.vit import ViT
from keras_transformer.utils.types import Activation

# Oquab et al., DINOv2, arXiv 2304.07193, table 17; the feed-forward of "g" is gated, two thirds of 4 · 1536 wide.
SIZES = {
    "S": Size(12, 384, 6, 1536),
    "B": Size(12, 768, 12, 3072),
    "L": Size(24, 1024, 16, 4096),
    "g": Size(40, 1536, 24, 4096),
}


def DINOv2(
    size: str | Size = "B",
    patch_size: int = 14,
    image_size: int | tuple[int, int] = 518,
    *,
    num_channels: int = 3,
    grid_size: int | None = None,
    gated: bool | None = None,
    num_register_tokens: int = 0,
    mask_token: bool = True,
    activation: Activation = "gelu",
    layer_scale: float = 1e-5,
    stochastic_depth: float = 0.0,
    dropout: float = 0.0,
    attention_dropout: float = 0.0,
    layer_norm_epsilon: float = 1e-6,
    name: str = "dinov2",
) -> keras.Model:
    """The vision transformer of DINOv2: LayerScale in every block, and SwiGLU in the largest.

    Its weights were made for 518 x 518 pixels and are mostly used at 224: `image_size=224, grid_size=37` takes them so, and
    resizes the position table bicubically.

    Args:
        size: "S", "B", "L", "g", or a `Size`.
        patch_size: int or pair of ints. Pixels.
        image_size: int or pair of ints, a multiple of the patch size. Pixels.
        num_channels: int.
        grid_size: int or pair of ints: the patches that the position table is for; None for those of `image_size`.
        gated: bool: whether the feed-forward is SwiGLU; None for "g" alone.
        num_register_tokens: int >= 0. Learned tokens without positions after the class token: see `vision.PatchEmbedding`.
        mask_token: bool. Whether the embedding has a vector for hidden patches: see `vision.PatchEmbedding`.
        activation: of a feed-forward that is not gated.
        layer_scale: float. What the scales of the blocks start as.
        stochastic_depth: float in [0, 1). In training, the share of rows that pass a sublayer by.
        dropout: float in [0, 1). Of the embedded patches, and of what attention and feed-forward give.
        attention_dropout: float in [0, 1). Of the attention weights.
        layer_norm_epsilon: float > 0. Of every norm.
        name: str.

    Returns:
        `keras.Model`: "images", float `(B, height, width, channels)`, to tokens `(B, 1 + patches, D)`, the class token
        first.

    Raises:
        ValueError: unknown size; an image that does not divide into patches.

    Example:

    >>> DINOv2(Size(2, 16, 2, 32), image_size=28).output_shape
    (None, 5, 16)

    Reference: Oquab et al., DINOv2, arXiv 2304.07193, appendix B and table 17.
    """
    gated = size == "g" if gated is None else gated
    size = get_size(size, SIZES)
    norm = LayerNormalization(epsilon=layer_norm_epsilon)
    return ViT(
        size,
        patch_size,
        image_size,
        num_channels=num_channels,
        grid_size=grid_size,
        num_register_tokens=num_register_tokens,
        mask_token=mask_token,
        interpolation="bicubic",
        residual=LayerScaleResidual(layer_scale, norm, stochastic_depth),
        feedforward=GatedFeedForward(size.intermediate_dim, use_bias=True) if gated else "dense",
        activation=activation,
        dropout=dropout,
        attention_dropout=attention_dropout,
        layer_norm_epsilon=layer_norm_epsilon,
        name=name,
    )
