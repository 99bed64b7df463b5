"""The Vision Transformer."""

from __future__ import annotations

import keras

from keras_transformer.blocks import Residual
from keras_transformer.layers.norms import LayerNormalization
from keras_transformer.models.building.image_stack import image_input, image_stack
from keras_transformer.models.building.size import Size, get_size
from keras_transformer.models.building.stack import final_norm
from keras_transformer.utils.types import Activation, AttentionLike, Config
from keras_transformer.vision import PatchEmbedding

# Ti and S: Touvron et al., DeiT, arXiv 2012.12877, table 1. B, L, H: Dosovitskiy et al., table 1.
SIZES = {
    "Ti": Size(num_layers=12, hidden_dim=192, num_heads=3, intermediate_dim=768),
    "S": Size(num_layers=12, hidden_dim=384, num_heads=6, intermediate_dim=1536),
    "B": Size(num_layers=12, hidden_dim=768, num_heads=12, intermediate_dim=3072),
    "L": Size(num_layers=24, hidden_dim=1024, num_heads=16, intermediate_dim=4096),
    "H": Size(num_layers=32, hidden_dim=1280, num_heads=16, intermediate_dim=5120),
}


def ViT(
    size: str | Size = "B",
    patch_size: int | tuple[int, int] = 16,
    image_size: int | tuple[int, int] = 224,
    *,
    num_channels: int = 3,
    grid_size: int | None = None,
    class_token: bool = True,
    num_register_tokens: int = 0,
    mask_token: bool = False,
    interpolation: str = "bilinear",
    residual: str | Residual = "pre",
    feedforward: str | keras.layers.Layer = "dense",
    activation: Activation = "gelu",
    dropout: float = 0.0,
    attention_dropout: float = 0.0,
    attention: AttentionLike = None,
    layer_norm_epsilon: float = 1e-6,
    name: str = "vit",
) -> keras.Model:
    """The Vision Transformer up to its last norm: pixels to tokens. `tasks.ImageClassifier` adds a head.

    Args:
        size: "Ti", "S", "B", "L", "H", or a `Size`.
        patch_size: int or pair of ints. Pixels.
        image_size: int or pair of ints, a multiple of the patch size. Pixels.
        num_channels: int.
        grid_size: int or pair of ints: the patches that the position table is for, when the weights come from images of
            another size; None for those of `image_size`.
        class_token: bool. Whether a learned token comes first.
        num_register_tokens: int >= 0. Learned tokens without positions after the class token: see `vision.PatchEmbedding`.
        mask_token: bool. Whether the embedding has a vector for hidden patches: see `vision.PatchEmbedding`.
        interpolation: "bilinear" or "bicubic": how the position table is resized.
        residual: name in `blocks.RESIDUALS`, or an instance to copy.
        feedforward: a name in `feedforward.FEEDFORWARDS`, or an instance to copy.
        activation: activation of a feed-forward that is given by name.
        dropout: float in [0, 1). Of the embedded patches, and of what attention and feed-forward give.
        attention_dropout: float in [0, 1). Of the attention weights.
        attention: a name in `attention.MECHANISMS`, or a layer like `MultiHeadAttention` to copy for each block.
        layer_norm_epsilon: float > 0. Of every norm.
        name: str.

    Returns:
        `keras.Model`: "images", float `(B, height, width, channels)`, to tokens `(B, T, D)`.

    Raises:
        ValueError: unknown size; an image that does not divide into patches.

    Example:

    >>> model = ViT("Ti", patch_size=16, image_size=32)
    >>> model.output_shape
    (None, 5, 192)

    Reference: Dosovitskiy et al., An Image is Worth 16x16 Words, arXiv 2010.11929. Weights of one grid serve another: the
    table is resized by `PatchEmbedding`, where the paper says "2D interpolation".
    """
    size = get_size(size, SIZES)
    norm = LayerNormalization(epsilon=layer_norm_epsilon)
    first: Config = {"class_token": class_token, "num_register_tokens": num_register_tokens, "mask_token": mask_token}
    table: Config = {"grid_size": grid_size, "interpolation": interpolation}
    embedding = PatchEmbedding(size.hidden_dim, patch_size, dropout=dropout, name="patch_embedding", **table, **first)
    return image_stack(
        image_input(image_size, num_channels),
        embedding,
        size,
        residual=residual,
        norm=norm,
        last_norm=final_norm(residual, norm),
        attention=attention,
        feedforward=feedforward,
        activation=activation,
        dropout=dropout,
        attention_dropout=attention_dropout,
        name=name,
    )
