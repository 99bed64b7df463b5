"""DINOv3."""

from __future__ import annotations

import keras

from keras_transformer.attention import MultiHeadAttention
from keras_transformer.blocks import LayerScaleResidual
from keras_transformer.feedforward import GatedFeedForward
from keras_transformer.layers.norms import LayerNormalization
from keras_transformer.models.building.image_stack import image_input, image_stack
from keras_transformer.models.building.size import Size, get_size
from keras_transformer.positions import AxialRotary
from keras_transformer.utils.types import Activation, LayerLike
from keras_transformer.vision import PatchCoordinates, PatchEmbedding

# Siméoni et al., DINOv3, arXiv 2508.10104, section 5 and the published configs.
SIZES = {
    "S": Size(12, 384, 6, 1536),
    "S+": Size(12, 384, 6, 1536),
    "B": Size(12, 768, 12, 3072),
    "L": Size(24, 1024, 16, 4096),
    "H+": Size(32, 1280, 20, 5120),
    "7B": Size(40, 4096, 32, 8192),
}
_GATED = ("S+", "H+", "7B")
_WITHOUT_QUERY_BIAS = ("7B",)


def DINOv3(
    size: str | Size = "B",
    patch_size: int | tuple[int, int] = 16,
    image_size: int | tuple[int, int] | None = 224,
    *,
    num_channels: int = 3,
    gated: bool | None = None,
    num_register_tokens: int = 4,
    mask_token: bool = True,
    feedforward: str | keras.layers.Layer | None = None,
    activation: Activation = "gelu",
    attention: LayerLike | None = None,
    coordinates: PatchCoordinates | None = None,
    layer_scale: float = 1e-5,
    stochastic_depth: float = 0.0,
    attention_dropout: float = 0.0,
    layer_norm_epsilon: float = 1e-5,
    name: str = "dinov3",
) -> keras.Model:
    """The vision transformer of DINOv3: rotary positions by row and column, register tokens, and LayerScale.

    It has no position table, so that one set of weights is for images of all sizes: `image_size=None` leaves height and
    width open, and `models.with_image_size` changes the size of a model.

    Args:
        size: "S", "S+", "B", "L", "H+", "7B", or a `Size`.
        patch_size: int or pair of ints. Pixels.
        image_size: int or pair of ints, a multiple of the patch size. Pixels. None for any size.
        num_channels: int.
        gated: bool: whether the feed-forward is SwiGLU; None for "S+", "H+" and "7B" alone. Without `feedforward`.
        num_register_tokens: int >= 0. Learned tokens after the class token: see `vision.PatchEmbedding`.
        mask_token: bool. Whether the embedding has a vector for hidden patches: see `vision.PatchEmbedding`.
        feedforward: a name in `feedforward.FEEDFORWARDS`, or an instance to copy; None for that of `gated`.
        activation: of a feed-forward that is given by name.
        attention: a layer like `MultiHeadAttention` to copy for each block, with its position; None for that of the paper.
        coordinates: `vision.PatchCoordinates`, whose augmentation is taken over; None for a random rescaling by up to 2 in
            training.
        layer_scale: float. What the scales of the blocks start as.
        stochastic_depth: float in [0, 1). In training, the share of rows that pass a sublayer by.
        attention_dropout: float in [0, 1). Of the attention weights. Without `attention`.
        layer_norm_epsilon: float > 0. Of every norm.
        name: str.

    Returns:
        `keras.Model`: "images", float `(B, height, width, channels)`, to tokens `(B, 1 + registers + patches, D)`, the class
        token first.

    Raises:
        ValueError: unknown size; an image that does not divide into patches; heads of less than 4 features.

    Example:

    >>> DINOv3(Size(2, 16, 2, 32), image_size=(32, 48)).output_shape
    (None, 11, 16)
    >>> DINOv3(Size(2, 16, 2, 32), image_size=None).output_shape
    (None, None, 16)

    Reference: Siméoni et al., DINOv3, arXiv 2508.10104, section 3.2 and the published configs. The boxes of coordinates are
    rescaled in training, as in the published code; it also knows shifts and jitter, which `coordinates` sets.
    """
    gated = size in _GATED if gated is None else gated
    query_bias = size not in _WITHOUT_QUERY_BIAS
    size = get_size(size, SIZES)
    norm = LayerNormalization(epsilon=layer_norm_epsilon)
    embedding = _patch_embedding(size.hidden_dim, patch_size, num_register_tokens, mask_token)
    attention = _attention(size, attention_dropout, query_bias) if attention is None else attention
    if feedforward is None:
        feedforward = GatedFeedForward(size.intermediate_dim, use_bias=True) if gated else "dense"
    return image_stack(
        image_input(image_size, num_channels),
        embedding,
        size,
        residual=LayerScaleResidual(layer_scale, norm, stochastic_depth),
        norm=norm,
        last_norm=LayerNormalization(epsilon=layer_norm_epsilon, name="final_norm"),
        attention=attention,
        feedforward=feedforward,
        activation=activation,
        coordinates=_coordinates(coordinates, embedding),
        name=name,
    )


def _patch_embedding(
    width: int, patch_size: int | tuple[int, int], num_register_tokens: int, mask_token: bool
) -> PatchEmbedding:
    """The embedding of the patches, without a position table."""
    return PatchEmbedding(
        width,
        patch_size,
        interpolation=None,
        num_register_tokens=num_register_tokens,
        mask_token=mask_token,
        name="patch_embedding",
    )


def _attention(size: Size, dropout: float, query_bias: bool) -> MultiHeadAttention:
    """The attention of the paper, with rotary positions by row and column."""
    return MultiHeadAttention(
        size.num_heads,
        size.hidden_dim // size.num_heads,
        dropout=dropout,
        use_bias=query_bias,
        use_key_bias=False,
        use_output_bias=True,
        position=AxialRotary(),
    )


def _coordinates(augmentation: PatchCoordinates | None, embedding: PatchEmbedding) -> PatchCoordinates:
    """Returns the coordinates of the tokens of an embedding, with the augmentation of a template."""
    template = PatchCoordinates(rescale=2.0) if augmentation is None else augmentation
    return PatchCoordinates(
        embedding.patch_size,
        embedding.num_prefix_tokens,
        template.shift,
        template.jitter,
        template.rescale,
        template.seed,
        name="patch_coordinates",
    )
