"""Moonshine: an encoder-decoder from samples of speech to text."""

from __future__ import annotations

from collections.abc import Callable

import keras

from keras_transformer.attention import MultiHeadAttention
from keras_transformer.audio import ConvolutionStem
from keras_transformer.blocks import DecoderBlock, EncoderBlock
from keras_transformer.feedforward import DenseFeedForward, GatedFeedForward
from keras_transformer.layers.norms import LayerNormalization
from keras_transformer.models.building.encoder_decoder import Side, encoder_decoder
from keras_transformer.models.building.size import Size, get_size
from keras_transformer.models.building.stack import make_norm
from keras_transformer.positions import Rotary
from keras_transformer.utils.serialization import clone
from keras_transformer.utils.types import Activation

# Jeffries et al., arXiv 2410.15608, table 1.
SIZES = {"tiny": Size(6, 288, 8, 1152), "base": Size(8, 416, 8, 1664)}


def Moonshine(
    size: str | Size = "tiny",
    vocabulary_size: int = 32768,
    *,
    num_decoder_layers: int | None = None,
    num_samples: int | None = None,
    position: Rotary | None = None,
    encoder_activation: Activation = "gelu",
    decoder_activation: Activation = "silu",
    use_attention_bias: bool = False,
    attention_dropout: float = 0.0,
    name: str = "moonshine",
) -> keras.Model:
    """The encoder-decoder of Moonshine: convolutions over samples, and pre-norm blocks with rotary positions on both sides.

    It computes as much as a recording is long; Whisper always reads 30 seconds. `tasks.LanguageModel(Moonshine(...),
    start_id=1, end_id=2)` adds the published head and generates from "samples".

    Args:
        size: "tiny", "base", or a `Size`, of both sides.
        vocabulary_size: int. V.
        num_decoder_layers: int; None for the number of layers of `size`.
        num_samples: int, or None for recordings of any length, at 16 kHz. All rows of a batch have one length.
        position: `positions.Rotary`, or None for 0.9 of a head in pairs: `Rotary(10000.0, "pairs", rotary_dim=...)`.
        encoder_activation: activation of the feed-forward of the encoder.
        decoder_activation: activation of the gate of the feed-forward of the decoder.
        use_attention_bias: bool. Whether queries, keys and values have biases.
        attention_dropout: float in [0, 1). Of the attention weights.
        name: str.

    Returns:
        `keras.Model`: {"samples": float `(B, samples)`, "target_token_ids": int32 `(B, T)`, "target_padding_mask": bool
        `(B, T)`} to the decoder's `(B, T, D)`.

    Raises:
        ValueError: unknown size name; heads that do not divide the width.

    Example:

    >>> from keras_transformer.models import Size
    >>> Moonshine(Size(1, 16, 2, 32), vocabulary_size=100).output_shape
    (None, None, 16)

    Reference: Jeffries et al., Moonshine: Speech Recognition for Live Transcription and Voice Commands, arXiv 2410.15608,
    section 3.
    """
    size = get_size(size, SIZES)
    width = size.hidden_dim // size.num_heads
    rotary = Rotary(layout="pairs", rotary_dim=int(0.9 * width) // 2 * 2) if position is None else position
    norm = LayerNormalization(epsilon=1e-5, center=False)

    def attention(name: str, is_rotated: bool = True) -> MultiHeadAttention:
        return MultiHeadAttention(
            size.num_heads,
            width,
            dropout=attention_dropout,
            use_bias=use_attention_bias,
            use_output_bias=False,
            position=clone(rotary) if is_rotated else None,
            name=name,
        )

    encoder_blocks = _encoder_blocks(size, attention, encoder_activation, norm)
    decoder_blocks = _decoder_blocks(num_decoder_layers or size.num_layers, size, attention, decoder_activation, norm)
    embedding = keras.layers.ReversibleEmbedding(vocabulary_size, size.hidden_dim, name="token_embedding")
    return encoder_decoder(
        Side([ConvolutionStem(size.hidden_dim, name="stem")], encoder_blocks, [make_norm(norm, "encoder_final_norm")]),
        Side([embedding], decoder_blocks, [make_norm(norm, "decoder_final_norm")]),
        name=name,
        source=keras.Input((num_samples,), name="samples"),
    )


def _encoder_blocks(
    size: Size, attention: Callable[..., MultiHeadAttention], activation: Activation, norm: keras.layers.Layer
) -> list[EncoderBlock]:
    return [
        EncoderBlock(
            attention("self_attention"),
            DenseFeedForward(size.intermediate_dim, activation, name="feedforward"),
            residual="pre",
            norm=norm,
            name=f"encoder_block_{index}",
        )
        for index in range(size.num_layers)
    ]


def _decoder_blocks(
    num_layers: int,
    size: Size,
    attention: Callable[..., MultiHeadAttention],
    activation: Activation,
    norm: keras.layers.Layer,
) -> list[DecoderBlock]:
    return [
        DecoderBlock(
            attention("self_attention"),
            GatedFeedForward(size.intermediate_dim, activation, use_bias=True, name="feedforward"),
            cross_attention=attention("cross_attention", is_rotated=False),
            norm=norm,
            name=f"decoder_block_{index}",
        )
        for index in range(num_layers)
    ]
