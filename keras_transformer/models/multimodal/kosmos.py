"""Kosmos: a causal model of interleaved text and images."""

from __future__ import annotations

import math

import keras

from keras_transformer.attention import MultiHeadAttention
from keras_transformer.blocks import DecoderBlock, SubLNResidual
from keras_transformer.feedforward import DenseFeedForward
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.norms import LayerNormalization
from keras_transformer.models.building.size import Size, get_size
from keras_transformer.models.building.stack import (
    make_attention,
    make_norm,
    padding_input,
    split_position,
    token_input,
)
from keras_transformer.models.multimodal.clip import CLIPVision
from keras_transformer.models.multimodal.clip_layers import UnitLength
from keras_transformer.positions import Sinusoidal
from keras_transformer.utils.serialization import clone
from keras_transformer.utils.types import Activation, Config, PositionLike
from keras_transformer.vision import EachImage, PlaceImages, Resampler

# Huang et al., Kosmos-1, arXiv 2302.14045, section 3.2, and Kosmos-2: the text model.
SIZES = {"base": Size(num_layers=24, hidden_dim=2048, num_heads=32, intermediate_dim=8192)}
# CLIP ViT-L/14: its blocks and its patch.
_VISION = (Size(24, 1024, 16, 4096), 14)


def Kosmos(
    size: str | Size,
    vocabulary_size: int,
    vision: keras.Model,
    *,
    begin_image_id: int,
    num_image_tokens: int = 64,
    position: PositionLike = "sinusoidal",
    scale_embeddings: bool = True,
    activation: Activation = "gelu",
    dropout: float = 0.0,
    attention_dropout: float = 0.0,
    hidden_dropout: float = 0.0,
    layer_norm_epsilon: float = 1e-5,
    name: str = "kosmos",
) -> keras.Model:
    """A decoder of interleaved text and images: each image is inserted into the text as a few tokens.

    An image encoder computes the features of an image, a resampler with learned queries reduces them to `num_image_tokens`
    tokens, and these replace the tokens after the begin-of-image token (`vision.PlaceImages`, `vision.mark_images`). Blocks
    have sub-LN: pre-norm, a second norm before each output projection, and a larger initialization.
    `tasks.LanguageModel` adds the head; its `generate({"images": images, "token_ids": prompts})` continues prompts with
    images. The images of a row are encoded once.

    Args:
        size: "base", or a `Size`: of the text model.
        vocabulary_size: int. V.
        vision: `keras.Model` from images to `(B, P, D_vision)`, such as `models.ViT`, or to a dict with such "tokens", as
            `models.CLIPVision`. Its layers are used, not copied: pretrained weights are kept, and frozen where `trainable`
            is False.
        begin_image_id: int in [0, `vocabulary_size`): the token before an image.
        num_image_tokens: int >= 1. Tokens of an image L.
        position: "sinusoidal", "learned" (2,048 positions), "rotary", "xpos", an instance, or None; Kosmos-1 uses "xpos".
        scale_embeddings: bool. Whether token embeddings and image tokens are multiplied by `√D`.
        activation: activation of the feed-forward.
        dropout: float in [0, 1). Of the embedding, and of the outputs of attention and feed-forward.
        attention_dropout: float in [0, 1). Of the attention weights.
        hidden_dropout: float in [0, 1). Of the hidden layer of the feed-forward.
        layer_norm_epsilon: float > 0. Of every norm.
        name: str.

    Returns:
        `keras.Model`: {"images": float `(B, I, height, width, channels)`, padded to I images per row,
        "token_ids": int32 `(B, T)`, "padding_mask": bool `(B, T)`} to `(B, T, D)`.

    Raises:
        ValueError: unknown size name; `begin_image_id` out of range; `vision` whose output is not tokens.

    Example:

    >>> from keras_transformer.models import Size, ViT
    >>> vision = ViT(Size(1, 8, 2, 16), patch_size=4, image_size=8)
    >>> model = Kosmos(Size(2, 16, 2, 32), 100, vision, begin_image_id=5, num_image_tokens=3)
    >>> [(name, tensor.shape) for name, tensor in model.input.items()]
    [('images', (None, None, 8, 8, 3)), ('token_ids', (None, None)), ('padding_mask', (None, None))]

    Reference: Huang et al., Language Is Not All You Need (Kosmos-1), arXiv 2302.14045, section 2; Wang et al., Foundation
    Transformers (Magneto), arXiv 2210.06423. Weights are initialized uniformly, not normally, with the same variance. The
    resampler is that of Kosmos-2.
    """
    size = get_size(size, SIZES)
    if not 0 <= begin_image_id < vocabulary_size:
        raise ValueError(f"begin_image_id must be in [0, {vocabulary_size}). Received: {begin_image_id}")
    norm = LayerNormalization(epsilon=layer_norm_epsilon)
    added, inside = split_position(position, 2048)
    heads = _heads(size, attention_dropout)
    attention = MultiHeadAttention(**heads, position=inside, context_norm=norm)
    # Layers
    image_tokens = EachImage(_image_encoder(vision, size, num_image_tokens, heads), name="image_tokens")
    blocks = _blocks(size, attention, activation, norm, dropout, hidden_dropout)
    # Graph
    images = keras.Input((None, *_image_shape(vision)), name="images")
    inputs = {"images": images, "token_ids": token_input(), "padding_mask": padding_input()}
    x = keras.layers.ReversibleEmbedding(vocabulary_size, size.hidden_dim, name="token_embedding")(inputs["token_ids"])
    x = PlaceImages(begin_image_id, name="place_images")(x, inputs["token_ids"], encoder_output=image_tokens(images))
    if scale_embeddings:
        x = keras.layers.Rescaling(math.sqrt(size.hidden_dim), name="embedding_scale")(x)
    x = x if added is None else added(x)
    x = Dropout(dropout, name="embedding_dropout")(x)
    for block in blocks:
        x = block(x, padding_mask=inputs["padding_mask"])
    return keras.Model(inputs, make_norm(norm, "final_norm")(x), name=name)


def Kosmos2(
    size: str | Size = "base",
    vocabulary_size: int = 65037,
    *,
    vision: keras.Model | None = None,
    begin_image_id: int = 64003,
    num_image_tokens: int = 64,
    image_size: int | tuple[int, int] = 224,
    activation: Activation = "gelu",
    dropout: float = 0.1,
    attention_dropout: float = 0.1,
    hidden_dropout: float = 0.0,
    scale_embeddings: bool = True,
    layer_norm_epsilon: float = 1e-5,
    name: str = "kosmos2",
) -> keras.Model:
    """Kosmos-2: a `Kosmos` with the image encoder of CLIP and location tokens for grounding.

    Args:
        size: "base", or a `Size`: of the text model.
        vocabulary_size: int. V.
        vision: image encoder, as in `Kosmos`; None for the image tower of CLIP L/14 with its norm and features of length 1.
        begin_image_id: int: the id of "<image>".
        num_image_tokens: int.
        image_size: int or pair of ints, for `vision=None`. Pixels.
        activation, dropout, attention_dropout, hidden_dropout, scale_embeddings, layer_norm_epsilon, name: see
            `Kosmos`.

    Returns:
        `keras.Model`: {"images": float `(B, I, height, width, channels)`, "token_ids": int32 `(B, T)`, "padding_mask": bool
        `(B, T)`} to `(B, T, D)`.

    Raises:
        ValueError: see `Kosmos`.

    Example:

    >>> from keras_transformer.models import CLIPVision, Size
    >>> vision = CLIPVision(Size(1, 8, 2, 16), patch_size=4, image_size=8)
    >>> model = Kosmos2(Size(2, 16, 2, 32), 100, vision=kosmos2_vision(vision), begin_image_id=5, num_image_tokens=3)
    >>> model.output_shape
    (None, None, 16)

    Reference: Peng et al., Kosmos-2: Grounding Multimodal Large Language Models to the World, arXiv 2306.14824; positions as
    in its published code, sinusoids that begin at 2. That code applies the embedding dropout twice.
    """
    if vision is None:
        tower, patch_size = _VISION
        vision = kosmos2_vision(CLIPVision(tower, patch_size, image_size))
    return Kosmos(
        size,
        vocabulary_size,
        vision,
        begin_image_id=begin_image_id,
        num_image_tokens=num_image_tokens,
        position=Sinusoidal(layout="halves", endpoint=True, offset=2, name="position"),
        scale_embeddings=scale_embeddings,
        activation=activation,
        dropout=dropout,
        attention_dropout=attention_dropout,
        hidden_dropout=hidden_dropout,
        layer_norm_epsilon=layer_norm_epsilon,
        name=name,
    )


def kosmos2_vision(tower: keras.Model) -> keras.Model:
    """Image features of Kosmos-2: all tokens of a `CLIPVision` after the last norm, each of length 1.

    Args:
        tower: `models.CLIPVision`. Its layers are used, not copied.

    Returns:
        `keras.Model`: "images" to `(B, P, D_vision)`.

    Example:

    >>> from keras_transformer.models import CLIPVision, Size
    >>> kosmos2_vision(CLIPVision(Size(1, 8, 2, 16), patch_size=4, image_size=8)).output_shape
    (None, 5, 8)

    Reference: Peng et al., Kosmos-2, arXiv 2306.14824, and its published code.
    """
    tokens = tower.get_layer("image_norm")(tower.output["tokens"])
    return keras.Model(tower.input, UnitLength(name="unit_length")(tokens), name=tower.name)


def _heads(size: Size, dropout: float) -> Config:
    """The arguments of the heads, in the blocks and in the resampler."""
    return {"num_heads": size.num_heads, "key_dim": size.hidden_dim // size.num_heads, "dropout": dropout}


def _blocks(
    size: Size,
    attention: keras.layers.Layer,
    activation: Activation,
    norm: keras.layers.Layer,
    dropout: float,
    hidden_dropout: float,
) -> list[DecoderBlock]:
    return [
        DecoderBlock(
            make_attention(size, attention),
            DenseFeedForward(size.intermediate_dim, activation, hidden_dropout, hidden_norm=norm, name="feedforward"),
            residual=SubLNResidual.of_stack(size.num_layers, clone(norm)),
            dropout=dropout,
            name=f"decoder_block_{index}",
        )
        for index in range(size.num_layers)
    ]


def _image_shape(vision):
    """Height, width and channels of the images."""
    (images,) = keras.tree.flatten(vision.input)
    return images.shape[1:]


def _image_encoder(vision, size, num_tokens, heads):
    """Model from images to `num_tokens` tokens of the width of the text model."""
    tokens = vision.output["tokens"] if isinstance(vision.output, dict) else vision.output
    if len(getattr(tokens, "shape", ())) != 3:
        raise ValueError(f"{vision.name!r} must return tokens (B, P, D). Its output: {vision.output}")
    x = keras.layers.Dense(size.hidden_dim, name="image_projection")(tokens)
    x = Resampler(num_tokens, MultiHeadAttention(**heads, name="attention"), name="resampler")(x)
    return keras.Model(vision.input, x, name="image_encoder")
