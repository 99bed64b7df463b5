"""SigLIP: an image encoder and a text encoder whose pairs are classified one by one."""

from __future__ import annotations

import keras

from keras_transformer.layers.norms import LayerNormalization
from keras_transformer.models.building.image_stack import image_input, image_stack
from keras_transformer.models.building.size import Size, get_size
from keras_transformer.models.building.stack import make_attention
from keras_transformer.models.multimodal.clip_layers import ContrastiveLogits, dual_encoder
from keras_transformer.models.multimodal.probe_pooling import ProbePooling
from keras_transformer.models.text.encoders.encoder import Encoder
from keras_transformer.utils.serialization import choice
from keras_transformer.utils.types import Activation
from keras_transformer.vision import PatchEmbedding

# Zhai et al., arXiv 2303.15343, section 4.2; Alabdulmohsin et al., arXiv 2305.13035, table 1 (So400m).
TOWERS = {
    "B": Size(12, 768, 12, 3072),
    "L": Size(24, 1024, 16, 4096),
    "So400m": Size(27, 1152, 16, 4304),
}
# Both towers, and the patch size.
SIZES = {"B/16": ("B", 16), "L/16": ("L", 16), "So400m/14": ("So400m", 14)}


def SigLIPVision(
    size: str | Size = "B",
    patch_size: int | tuple[int, int] = 16,
    image_size: int | tuple[int, int] = 224,
    *,
    num_channels: int = 3,
    grid_size: int | tuple[int, int] | None = None,
    use_head: bool = True,
    activation: Activation = "gelu_tanh",
    attention_dropout: float = 0.0,
    layer_norm_epsilon: float = 1e-6,
    name: str = "siglip_vision",
) -> keras.Model:
    """The image tower of SigLIP: a vision transformer without a class token, pooled by attention with a learned probe.

    Args:
        size: "B", "L", "So400m", or a `Size`.
        patch_size: int or pair of ints. Pixels.
        image_size: int or pair of ints, a multiple of the patch size. Pixels.
        num_channels: int.
        grid_size: int or pair of ints: the patches of the position table; None for those of `image_size`.
        use_head: bool. Whether tokens are pooled.
        activation: activation of the feed-forward.
        attention_dropout: float in [0, 1). Of the attention weights.
        layer_norm_epsilon: float > 0. Of every norm.
        name: str.

    Returns:
        `keras.Model`: "images", float `(B, height, width, channels)`, to {"tokens": `(B, T, D)`, "pooled": `(B, D)`}; to the
        tokens alone without a head.

    Raises:
        ValueError: unknown size; heads that do not divide the width; an image that does not divide into patches.

    Example:

    >>> model = SigLIPVision(Size(1, 8, 2, 16), patch_size=4, image_size=8)
    >>> model.output["pooled"].shape
    (None, 8)

    Reference: Zhai et al., SigLIP, arXiv 2303.15343, section 4; the pooling: Zhai et al., arXiv 2106.04560, section 3.1.
    """
    size = get_size(size, TOWERS)
    norm = LayerNormalization(epsilon=layer_norm_epsilon)
    stack = image_stack(
        image_input(image_size, num_channels),
        PatchEmbedding(
            size.hidden_dim,
            patch_size,
            grid_size=grid_size,
            class_token=False,
            interpolation="bicubic",
            name="patch_embedding",
        ),
        size,
        norm=norm,
        last_norm=LayerNormalization(epsilon=layer_norm_epsilon, name="image_norm"),
        activation=activation,
        attention_dropout=attention_dropout,
        block_name="image_encoder_block",
        name=name,
    )
    if not use_head:
        return stack
    pool = ProbePooling(size.num_heads, size.intermediate_dim, activation, layer_norm_epsilon, name="pooling")
    return keras.Model(stack.input, {"tokens": stack.output, "pooled": pool(stack.output)}, name=name)


def SigLIPText(
    size: str | Size = "B",
    vocabulary_size: int = 32000,
    *,
    max_sequence_length: int = 64,
    projection_dim: int | None = None,
    activation: Activation = "gelu_tanh",
    attention_dropout: float = 0.0,
    layer_norm_epsilon: float = 1e-6,
    name: str = "siglip_text",
) -> keras.Model:
    """The text tower of SigLIP: an encoder, pooled at its last position.

    It was trained with texts padded to `max_sequence_length` tokens, and a mask that is True everywhere.

    Args:
        size: "B", "L", "So400m", or a `Size`.
        vocabulary_size: int. V. SigLIP 2 has 256000.
        max_sequence_length: int. Rows of the position embedding.
        projection_dim: int. Width of the vector of a text; None for that of the tokens.
        activation: activation of the feed-forward.
        attention_dropout: float in [0, 1). Of the attention weights.
        layer_norm_epsilon: float > 0. Of every norm.
        name: str.

    Returns:
        `keras.Model`: {"token_ids": int32 `(B, T)`, "padding_mask": bool `(B, T)`} to {"tokens": `(B, T, D)`, "pooled":
        `(B, projection_dim)`}, the pooled position being the last one, padding or not.

    Raises:
        ValueError: unknown size; heads that do not divide the width.

    Example:

    >>> SigLIPText(Size(1, 8, 2, 16), vocabulary_size=50).output["pooled"].shape
    (None, 8)

    Reference: Zhai et al., SigLIP, arXiv 2303.15343, section 4; the last position as in its code.
    """
    size = get_size(size, TOWERS)
    stack = Encoder(
        size,
        vocabulary_size,
        max_sequence_length=max_sequence_length,
        norm=LayerNormalization(epsilon=layer_norm_epsilon),
        attention=make_attention(size, dropout=attention_dropout),
        activation=activation,
        name=name,
    )
    project = keras.layers.Dense(projection_dim or size.hidden_dim, name="text_projection")
    return keras.Model(stack.input, {"tokens": stack.output, "pooled": project(stack.output[:, -1])}, name=name)


def SigLIP(
    size: str = "B/16",
    image_size: int | tuple[int, int] = 224,
    *,
    vision: keras.Model | None = None,
    text: keras.Model | None = None,
    initial_temperature: float = 0.1,
    initial_bias: float = -10.0,
    name: str = "siglip",
) -> keras.Model:
    """Dual encoder of images and texts whose logits say of each pair, by itself, whether it matches.

    Train it on pairs with `compile(loss={"logits": training.SigmoidContrastiveLoss()})`. `sigmoid(logits)` is the
    probability of each pair.

    Args:
        size: "B/16", "L/16" or "So400m/14": size of the towers that are not passed.
        image_size: int or pair of ints. Pixels; used without `vision`.
        vision: model of {"pooled"}, such as `SigLIPVision(...)` or `SigLIP2Vision(...)`, or None.
        text: model of {"pooled"} of the same width, such as `SigLIPText(...)`, or None.
        initial_temperature: float > 0. Initial value of the learned temperature, by which the cosines are divided.
        initial_bias: float. Initial value of the learned bias of the logits.
        name: str.

    Returns:
        `keras.Model`: the inputs of both towers to {"logits": float32 `(B, B)`, images in rows and texts in columns,
        "image_embedding" and "text_embedding": float32 `(B, E)` of length 1}. `predict` returns the logits within each
        batch.

    Raises:
        ValueError: unknown size.

    Example:

    >>> vision = SigLIPVision(Size(1, 8, 2, 16), patch_size=4, image_size=8)
    >>> text = SigLIPText(Size(1, 12, 2, 16), vocabulary_size=50, projection_dim=8)
    >>> sorted(SigLIP(vision=vision, text=text).output)
    ['image_embedding', 'logits', 'text_embedding']

    Reference: Zhai et al., Sigmoid Loss for Language Image Pre-Training, arXiv 2303.15343, algorithm 1.
    """
    tower, patch_size = choice(size, SIZES, argument="size")
    vision = SigLIPVision(tower, patch_size, image_size) if vision is None else vision
    text = SigLIPText(tower) if text is None else text
    logits = ContrastiveLogits(
        initial_temperature, max_scale=None, initial_bias=initial_bias, name="logits", dtype="float32"
    )
    return dual_encoder(vision, text, logits, "pooled", name)
