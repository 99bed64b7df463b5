"""DeiT with its distillation token."""

from __future__ import annotations

import keras

from keras_transformer.layers.norms import LayerNormalization
from keras_transformer.models.building.image_stack import image_input, image_stack
from keras_transformer.models.building.size import Size, get_size
from keras_transformer.models.vision.vit import SIZES as VIT_SIZES
from keras_transformer.utils.types import Activation, AttentionLike
from keras_transformer.vision import PatchEmbedding

# Touvron et al., DeiT, arXiv 2012.12877, table 1.
SIZES = {name: VIT_SIZES[name] for name in ("Ti", "S", "B")}


def DeiT(
    size: str | Size = "B",
    patch_size: int = 16,
    image_size: int | tuple[int, int] = 224,
    *,
    num_channels: int = 3,
    grid_size: int | None = None,
    interpolation: str = "bicubic",
    activation: Activation = "gelu",
    dropout: float = 0.0,
    attention_dropout: float = 0.0,
    attention: AttentionLike = None,
    layer_norm_epsilon: float = 1e-6,
    name: str = "deit",
) -> keras.Model:
    """A vision transformer with a distillation token besides the class token.

    `tasks.DistilledImageClassifier` adds its two heads; `models.ViT` is DeiT without distillation.

    Args:
        size: "Ti", "S", "B", or a `Size`.
        patch_size: int or pair of ints. Pixels.
        image_size: int or pair of ints, a multiple of the patch size. Pixels.
        num_channels: int.
        grid_size: int or pair of ints: the patches that the position table is for; None for those of `image_size`.
        interpolation: "bilinear" or "bicubic": how the position table is resized.
        activation: activation of the feed-forward.
        dropout: float in [0, 1). Of the embedded patches, and of what attention and feed-forward give.
        attention_dropout: float in [0, 1). Of the attention weights.
        attention: a name in `attention.MECHANISMS`, or a layer like `MultiHeadAttention` to copy for each block.
        layer_norm_epsilon: float > 0. Of every norm.
        name: str.

    Returns:
        `keras.Model`: "images", float `(B, height, width, channels)`, to tokens `(B, 2 + patches, D)`.

    Raises:
        ValueError: unknown size; an image that does not divide into patches.

    Example:

    >>> DeiT("Ti", patch_size=16, image_size=32).output_shape
    (None, 6, 192)

    Reference: Touvron et al., Training data-efficient image transformers, arXiv 2012.12877, section 4; the table is resized
    bicubically, as in section 3.
    """
    size = get_size(size, SIZES)
    embedding = PatchEmbedding(
        size.hidden_dim,
        patch_size,
        grid_size=grid_size,
        distillation_token=True,
        dropout=dropout,
        interpolation=interpolation,
        name="patch_embedding",
    )
    return image_stack(
        image_input(image_size, num_channels),
        embedding,
        size,
        norm=LayerNormalization(epsilon=layer_norm_epsilon),
        last_norm=LayerNormalization(epsilon=layer_norm_epsilon, name="final_norm"),
        attention=attention,
        activation=activation,
        dropout=dropout,
        attention_dropout=attention_dropout,
        name=name,
    )
