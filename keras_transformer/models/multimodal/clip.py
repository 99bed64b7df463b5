"""CLIP: an image encoder and a text encoder with a shared embedding space."""

from __future__ import annotations

from collections.abc import Sequence

import keras

from keras_transformer.layers.norms import LayerNormalization
from keras_transformer.models.building.image_stack import image_input, image_stack
from keras_transformer.models.building.size import Size, get_size
from keras_transformer.models.building.stack import make_attention
from keras_transformer.models.multimodal.clip_layers import ContrastiveLogits, EndTokenPooling, dual_encoder
from keras_transformer.models.text.decoders.decoder import Decoder
from keras_transformer.utils.serialization import choice
from keras_transformer.utils.types import Activation
from keras_transformer.vision import PatchEmbedding

# Radford et al., CLIP, arXiv 2103.00020, tables 19 and 20: image tower, patch size, text tower, projection width.
SIZES = {
    "B/32": (Size(12, 768, 12, 3072), 32, Size(12, 512, 8, 2048), 512),
    "B/16": (Size(12, 768, 12, 3072), 16, Size(12, 512, 8, 2048), 512),
    "L/14": (Size(24, 1024, 16, 4096), 14, Size(12, 768, 12, 3072), 768),
}


def CLIPVision(
    size: str | Size,
    patch_size: int = 32,
    image_size: int | tuple[int, int] = 224,
    *,
    num_channels: int = 3,
    grid_size: int | None = None,
    projection_dim: int | None = None,
    activation: Activation = "quick_gelu",
    attention_dropout: float = 0.0,
    layer_norm_epsilon: float = 1e-5,
    name: str = "clip_vision",
) -> keras.Model:
    """The image tower of CLIP: a vision transformer with a norm before its blocks and one after them, on the class token.

    Args:
        size: `Size`.
        patch_size: int or pair of ints. Pixels.
        image_size: int or pair of ints, a multiple of the patch size. Pixels.
        num_channels: int.
        grid_size: int or pair of ints: the patches of the position table; None for those of `image_size`.
        projection_dim: int. Width of the shared embedding space; None for no projection.
        activation: activation of the feed-forward.
        attention_dropout: float in [0, 1). Of the attention weights.
        layer_norm_epsilon: float > 0. Of every norm.
        name: str.

    Returns:
        `keras.Model`: "images", float `(B, height, width, channels)`, to {"tokens": `(B, T, D)`, "pooled": `(B, D)`}, the
        tokens before the last norm; with `projection_dim` also "embedding": `(B, projection_dim)`.

    Raises:
        ValueError: heads that do not divide the width; an image that does not divide into patches.

    Example:

    >>> model = CLIPVision(Size(1, 8, 2, 16), patch_size=4, image_size=8, projection_dim=6)
    >>> model.output["embedding"].shape
    (None, 6)

    Reference: Radford et al., arXiv 2103.00020, section 2.4.
    """
    size = get_size(size, {})
    norm = LayerNormalization(epsilon=layer_norm_epsilon)
    embedding = PatchEmbedding(
        size.hidden_dim,
        patch_size,
        grid_size=grid_size,
        interpolation="bicubic",
        use_bias=False,
        name="patch_embedding",
    )
    stack = image_stack(
        image_input(image_size, num_channels),
        embedding,
        size,
        norm=norm,
        first_norm=LayerNormalization(epsilon=layer_norm_epsilon, name="embedding_norm"),
        activation=activation,
        attention_dropout=attention_dropout,
        name=name,
    )
    norm = LayerNormalization(epsilon=layer_norm_epsilon, name="image_norm")
    return _tower(stack, norm(stack.output[:, 0]), projection_dim, "image_projection")


def CLIPText(
    size: str | Size,
    vocabulary_size: int = 49408,
    *,
    max_sequence_length: int = 77,
    end_id: int | Sequence[int] | None = 49407,
    projection_dim: int | None = None,
    activation: Activation = "quick_gelu",
    attention_dropout: float = 0.0,
    layer_norm_epsilon: float = 1e-5,
    name: str = "clip_text",
) -> keras.Model:
    """The text tower of CLIP: a causal decoder, pooled at the end token.

    Args:
        size: `Size`.
        vocabulary_size: int. V.
        max_sequence_length: int. Rows of the position embedding.
        end_id: int, or None. The token whose first occurrence is pooled; None for the token with the highest id, as in the
            original code.
        projection_dim: int. Width of the shared embedding space; None for no projection.
        activation: activation of the feed-forward.
        attention_dropout: float in [0, 1). Of the attention weights.
        layer_norm_epsilon: float > 0. Of every norm.
        name: str.

    Returns:
        `keras.Model`: {"token_ids": int32 `(B, T)`, "padding_mask": bool `(B, T)`} to {"tokens": `(B, T, D)`, "pooled":
        `(B, D)`}; with `projection_dim` also "embedding": `(B, projection_dim)`.

    Raises:
        ValueError: heads that do not divide the width.

    Example:

    >>> model = CLIPText(Size(1, 8, 2, 16), vocabulary_size=50, end_id=49, projection_dim=6)
    >>> model.output["embedding"].shape
    (None, 6)

    Reference: Radford et al., arXiv 2103.00020, section 2.4.
    """
    size = get_size(size, {})
    stack = Decoder(
        size,
        vocabulary_size,
        max_sequence_length=max_sequence_length,
        norm=LayerNormalization(epsilon=layer_norm_epsilon),
        attention=make_attention(size, dropout=attention_dropout),
        activation=activation,
        name=name,
    )
    pooled = EndTokenPooling(end_id, name="end_token")(stack.output, stack.input["token_ids"])
    return _tower(stack, pooled, projection_dim, "text_projection")


def CLIP(
    size: str = "B/32",
    image_size: int | tuple[int, int] = 224,
    *,
    vision: keras.Model | None = None,
    text: keras.Model | None = None,
    projection_dim: int | None = None,
    initial_temperature: float = 0.07,
    name: str = "clip",
) -> keras.Model:
    """Dual encoder of images and texts: both towers, their projections, and the similarity of every image to every text.

    Train it on pairs with `compile(loss={"logits": training.ContrastiveLoss()})`. The image tower alone is
    `keras.Model(model.input["images"], model.output["image_embedding"])`.

    Args:
        size: "B/32", "B/16" or "L/14": size of the towers that are not passed.
        image_size: int or pair of ints. Pixels; used without `vision`.
        vision: model of {"embedding"}, such as `CLIPVision(..., projection_dim=...)`, or None.
        text: model of {"embedding"}, such as `CLIPText(..., projection_dim=...)`, or None.
        projection_dim: int, or None for the width of `size`.
        initial_temperature: float > 0. Initial value of the learned temperature, by which the logits are divided.
        name: str.

    Returns:
        `keras.Model`: {"images": float `(B, height, width, channels)`, "token_ids": int32 `(B, T)`, "padding_mask": bool
        `(B, T)`} to {"logits": float32 `(B, B)`, images in rows and texts in columns, "image_embedding" and
        "text_embedding": float32 `(B, projection_dim)` of length 1}. `predict` returns the logits within each batch.

    Raises:
        ValueError: unknown size.

    Example:

    >>> vision = CLIPVision(Size(1, 8, 2, 16), patch_size=4, image_size=8, projection_dim=6)
    >>> text = CLIPText(Size(1, 12, 2, 16), vocabulary_size=50, end_id=49, projection_dim=6)
    >>> sorted(CLIP(vision=vision, text=text).output)
    ['image_embedding', 'logits', 'text_embedding']

    Reference: Radford et al., Learning Transferable Visual Models From Natural Language Supervision, arXiv 2103.00020,
    figure 3; the learned temperature, section 2.5.
    """
    image_tower_size, patch_size, text_tower_size, width = choice(size, SIZES, argument="size")
    projection_dim = projection_dim or width
    if vision is None:
        image_tower = CLIPVision(image_tower_size, patch_size, image_size, projection_dim=projection_dim)
    else:
        image_tower = vision
    text_tower = CLIPText(text_tower_size, projection_dim=projection_dim) if text is None else text
    logits = ContrastiveLogits(initial_temperature, name="logits", dtype="float32")
    return dual_encoder(image_tower, text_tower, logits, "embedding", name)


def _tower(stack, pooled, projection_dim, projection):
    outputs = {"tokens": stack.output, "pooled": pooled}
    if projection_dim is not None:
        outputs["embedding"] = keras.layers.Dense(projection_dim, use_bias=False, name=projection)(pooled)
    return keras.Model(stack.input, outputs, name=stack.name)
