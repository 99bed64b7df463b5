"""PaliGemma: a decoder of text after images, a prefix language model."""

from __future__ import annotations

import math

import keras

from keras_transformer.blocks import PrefixDecoderBlock
from keras_transformer.feedforward import GatedFeedForward
from keras_transformer.layers.norms import ZeroCenteredRMSNormalization
from keras_transformer.models.building.rotary_attention import GroupedSize, get_grouped_size, rotary_attention
from keras_transformer.models.building.size import Size
from keras_transformer.models.building.stack import make_attention, make_norm, padding_input, token_input
from keras_transformer.models.multimodal.siglip import SigLIPVision
from keras_transformer.models.text.decoders.gemma import SIZES as GEMMA_SIZES
from keras_transformer.positions import Rotary
from keras_transformer.utils.types import Activation
from keras_transformer.vision import EachImage, FillImages

# Beyer et al., PaliGemma, arXiv 2407.07726, section 3.1: Gemma 2B, and So400m with patches of 14 pixels.
SIZES: dict[str, GroupedSize] = {"3B": GEMMA_SIZES["2B"]}
_VISION = ("So400m", 14)


def PaliGemma(
    size: str | Size = "3B",
    vocabulary_size: int = 257152,
    vision: keras.Model | None = None,
    *,
    image_id: int = 256000,
    num_key_value_heads: int | None = None,
    key_dim: int | None = None,
    position: Rotary | None = None,
    use_attention_bias: bool = False,
    activation: Activation = "gelu_tanh",
    attention_dropout: float = 0.0,
    rms_norm_epsilon: float = 1e-6,
    name: str = "paligemma",
) -> keras.Model:
    """The decoder of PaliGemma: Gemma, whose prompts begin with the tokens of images, as a prefix language model.

    The image tokens and the text of the prompt attend to one another, the answer is causal. In training "prefix_mask" says
    which tokens are the prompt; in generation it is all that the prompt has, which is read in one call.
    `tasks.LanguageModel` adds the head; its `generate({"images": images, "token_ids": prompts})` answers prompts.

    Args:
        size: "3B", or a `Size`: of the text model.
        vocabulary_size: int. V.
        vision: `keras.Model` from images to `(B, P, D_vision)`, such as `models.SigLIPVision(use_head=False)`; None for
            So400m with images of 224 pixels. Its layers are used, not copied.
        image_id: int: the token that stands for each token of an image.
        num_key_value_heads: int or None. Number of key/value heads, a divisor of the number of heads. None: that of the
            named size, or the number of heads.
        key_dim: int or None. Size of each head. None: that of the named size, or `D / N`.
        position: `positions.Rotary`, or None for `Rotary(10000.0, "halves")`.
        use_attention_bias: bool. Whether the four projections of attention have biases.
        activation: activation of the gate.
        attention_dropout: float in [0, 1). Of the attention weights.
        rms_norm_epsilon: float > 0. Of every norm.
        name: str.

    Returns:
        `keras.Model`: {"images": float `(B, I, height, width, channels)`, padded to I images per row, "token_ids": int32
        `(B, T)` with P times `image_id` for each image, "padding_mask": bool `(B, T)`, "prefix_mask": bool `(B, T)`} to
        `(B, T, D)`.

    Raises:
        ValueError: unknown size name; `vision` whose output is not tokens.

    Example:

    >>> vision = SigLIPVision(Size(1, 8, 2, 16), patch_size=4, image_size=8, use_head=False)
    >>> model = PaliGemma(Size(2, 16, 2, 32), 100, vision, image_id=5, num_key_value_heads=1)
    >>> [(name, tensor.shape) for name, tensor in model.input.items()][:2]
    [('images', (None, None, 8, 8, 3)), ('token_ids', (None, None))]

    Reference: Beyer et al., PaliGemma, arXiv 2407.07726, sections 3.1 and 3.2. Positions count from 0, where the code counts
    from 1; rotary positions are relative.
    """
    grouped = get_grouped_size(size, SIZES, num_key_value_heads, key_dim)
    tower: keras.Model = vision or SigLIPVision(*_VISION, use_head=False)
    size = grouped.size
    # Layers
    encoder = _image_encoder(tower, size.hidden_dim)
    norm = ZeroCenteredRMSNormalization(epsilon=rms_norm_epsilon)
    position = position or Rotary(layout="halves")
    attention = rotary_attention(grouped, position, dropout=attention_dropout, use_bias=use_attention_bias)
    blocks = _blocks(size, attention, activation, norm)
    # Graph
    (shape,) = (tensor.shape[1:] for tensor in keras.tree.flatten(tower.input))
    images = keras.Input((None, *shape), name="images")
    inputs = {"images": images, "token_ids": token_input(), "padding_mask": padding_input()}
    inputs["prefix_mask"] = padding_input("prefix_mask", optional=False)
    x = keras.layers.ReversibleEmbedding(vocabulary_size, size.hidden_dim, name="token_embedding")(inputs["token_ids"])
    x = keras.layers.Rescaling(math.sqrt(size.hidden_dim), name="embedding_scale")(x)
    image_tokens = EachImage(encoder, name="image_tokens")(images)
    x = FillImages(image_id, name="fill_images")(x, inputs["token_ids"], encoder_output=image_tokens)
    for block in blocks:
        x = block(x, padding_mask=inputs["padding_mask"], prefix_mask=inputs["prefix_mask"])
    return keras.Model(inputs, make_norm(norm, "final_norm")(x), name=name)


def _image_encoder(tower: keras.Model, width: int) -> keras.Model:
    """A model from images to tokens of the width of the text model."""
    if len(getattr(tower.output, "shape", ())) != 3:
        raise ValueError(f"{tower.name!r} must return tokens (B, P, D). Its output: {tower.output}")
    projected = keras.layers.Dense(width, name="image_projection")(tower.output)
    return keras.Model(tower.input, projected, name="image_encoder")


def _blocks(
    size: Size, attention: keras.layers.Layer, activation: Activation, norm: keras.layers.Layer
) -> list[PrefixDecoderBlock]:
    return [
        PrefixDecoderBlock(
            make_attention(size, attention),
            GatedFeedForward(size.intermediate_dim, activation, name="feedforward"),
            norm=norm,
            name=f"decoder_block_{index}",
        )
        for index in range(size.num_layers)
    ]
