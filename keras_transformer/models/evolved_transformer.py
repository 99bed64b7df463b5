"""The Evolved Transformer."""

from __future__ import annotations

import math
from typing import NamedTuple

import keras

from keras_transformer.attention import BranchedConvolution, MultiHeadAttention
from keras_transformer.blocks import BranchedDecoderBlock, BranchedEncoderBlock, DecoderBlock, EncoderBlock, Residual
from keras_transformer.feedforward import DenseFeedForward, GatedLinearUnit
from keras_transformer.models.building.encoder_decoder import Side, encoder_decoder, token_tables
from keras_transformer.models.building.stack import final_norm, first_layer
from keras_transformer.positions import Sinusoidal
from keras_transformer.utils.serialization import choice

# What doubling the heads of a decoder's first attention stops at.
_MOST_HEADS = 16


class EvolvedSize(NamedTuple):
    """The measures of an Evolved Transformer. A cell is as deep as two blocks of a Transformer.

    Attributes:
        num_encoder_layers: how many cells the encoder has.
        num_decoder_layers: how many the decoder has.
        hidden_dim: width of the tokens D, even; feed-forwards are four times as wide.
        num_heads: attention heads N, each `D // N` wide; the first attention of a decoder's cell has 2 N, at most 16.
    """

    num_encoder_layers: int
    num_decoder_layers: int
    hidden_dim: int
    num_heads: int


# So et al., arXiv 1901.11117, and their code.
SIZES = {
    "tiny": EvolvedSize(3, 4, 128, 4),
    "base": EvolvedSize(3, 4, 512, 8),
    "big": EvolvedSize(3, 4, 1024, 16),
    "deep": EvolvedSize(9, 10, 640, 16),
}


def EvolvedTransformer(
    size: str | EvolvedSize = "base",
    vocabulary_size: int = 33288,
    *,
    target_vocabulary_size: int | None = None,
    tie_embeddings: bool = True,
    residual: str | Residual = "pre",
    layer_norm_epsilon: float = 1e-6,
    dropout: float = 0.1,
    attention_dropout: float = 0.0,
    name: str = "evolved_transformer",
) -> keras.Model:
    """The encoder-decoder whose cells an evolutionary search has found, up to its head: gates, convolutions in branches,
    and attention. `tasks.LanguageModel` puts the head on it.

    A cell of the encoder is a gated linear unit, a `BranchedConvolution` (a dense layer and a convolution of 3 tokens, then
    a separable one of 9), self-attention, and a feed-forward of ReLU. One of the decoder is self-attention with twice the
    heads beside cross-attention, a causal `BranchedConvolution` (separable ones of 11 and of 7, then of 7), and an ordinary
    block: self-attention, cross-attention, and a feed-forward of swish with a norm in its middle. Its cache holds the keys
    of both attentions, and the tokens that the convolutions reach.

    Args:
        size: "tiny", "base", "big", "deep", or an `EvolvedSize`.
        vocabulary_size: int. Of the source; the default is that of the paper's English-German.
        target_vocabulary_size: int, or None for `vocabulary_size`.
        tie_embeddings: bool. Whether source and target share one table (which `tasks.LanguageModel` shares too, by default).
        residual: a name in `blocks.RESIDUALS`, such as "pre" (the paper), or an instance to copy; DeepNorm as an instance.
        layer_norm_epsilon: float > 0. Of every norm.
        dropout: float in [0, 1). Of the embeddings, of what each part gives, of the branches, and of the hidden layers of
            feed-forwards.
        attention_dropout: float in [0, 1). Of the attention weights.
        name: str.

    Returns:
        `keras.Model`: {"source_token_ids", "target_token_ids": int32 `(B, S)`, `(B, T)`; "source_padding_mask",
        "target_padding_mask": bool} to the decoder's `(B, T, D)`.

    Raises:
        ValueError: unknown size name or a scheme; an odd width, or one that heads do not divide; tied tables of
            different vocabularies.

    Example:

    >>> EvolvedTransformer(EvolvedSize(1, 1, 16, 2), vocabulary_size=100).output_shape
    (None, None, 16)

    Reference: So et al., The Evolved Transformer, arXiv 1901.11117, figure 3. Where the figure is silent, as in the
    authors' code: no biases in attention, a norm behind each side, the activations of the branches, which are padded by
    zeros where they are added, and sines before cosines.
    """
    size = _checked(size)
    norm = keras.layers.LayerNormalization(epsilon=layer_norm_epsilon)
    options = {"residual": residual, "norm": norm, "dropout": dropout}
    tables = token_tables(size.hidden_dim, vocabulary_size, target_vocabulary_size, tie_embeddings)
    sides = []
    for side, table, make_cell, num_layers in (
        ("encoder", tables[0], _encoder_cell, size.num_encoder_layers),
        ("decoder", tables[1], _decoder_cell, size.num_decoder_layers),
    ):
        front = [
            table,
            keras.layers.Rescaling(math.sqrt(size.hidden_dim), name=f"{side}_scale"),
            Sinusoidal(layout="halves", endpoint=True, name=f"{side}_position"),
            keras.layers.Dropout(dropout, name=f"{side}_dropout"),
            first_layer(residual, f"{side}_open_streams"),
        ]
        cells = [make_cell(size, index, attention_dropout, options) for index in range(num_layers)]
        blocks = [block for cell in cells for block in cell]
        sides.append(Side(front, blocks, [final_norm(residual, norm, f"{side}_final_norm")]))
    return encoder_decoder(*sides, name=name)


def _encoder_cell(size, index, attention_dropout, options):
    """The blocks of a cell of the encoder."""
    width, dropout = size.hidden_dim, options["dropout"]
    convolution = BranchedConvolution(
        wide=keras.layers.Dense(4 * width, activation="relu"),
        narrow=keras.layers.Conv1D(width // 2, 3, activation="relu"),
        output=keras.layers.SeparableConv1D(width // 2, 9),
        norm=options["norm"],
        dropout=dropout,
        name="convolution",
    )
    feedforward = DenseFeedForward(4 * width, "relu", dropout=dropout, name="feedforward")
    attention = _attention(size, size.num_heads, attention_dropout, "self_attention")
    return [
        BranchedEncoderBlock(GatedLinearUnit(name="gate"), convolution, name=f"encoder_branches_{index}", **options),
        EncoderBlock(attention, feedforward, name=f"encoder_block_{index}", **options),
    ]


def _decoder_cell(size, index, attention_dropout, options):
    """The blocks of a cell of the decoder."""
    width, heads, dropout = size.hidden_dim, size.num_heads, options["dropout"]

    def attention(num_heads, name):
        return _attention(size, num_heads, attention_dropout, name)

    convolution = BranchedConvolution(
        wide=keras.layers.SeparableConv1D(2 * width, 11, activation="relu"),
        narrow=keras.layers.SeparableConv1D(width // 2, 7),
        output=keras.layers.SeparableConv1D(width, 7),
        norm=options["norm"],
        dropout=dropout,
        name="convolution",
    )
    feedforward = DenseFeedForward(4 * width, "silu", dropout=dropout, hidden_norm=options["norm"], name="feedforward")
    return [
        BranchedDecoderBlock(
            attention(_doubled(heads), "self_attention"),
            attention(heads, "cross_attention"),
            convolution,
            name=f"decoder_branches_{index}",
            **options,
        ),
        DecoderBlock(
            attention(heads, "self_attention"),
            feedforward,
            cross_attention=attention(heads, "cross_attention"),
            name=f"decoder_block_{index}",
            **options,
        ),
    ]


def _doubled(num_heads):
    return max(num_heads, min(2 * num_heads, _MOST_HEADS))


def _attention(size, num_heads, dropout, name):
    return MultiHeadAttention(num_heads, size.hidden_dim // num_heads, dropout=dropout, use_bias=False, name=name)


def _checked(size):
    """An `EvolvedSize` from a name or four integers."""
    size = choice(size, SIZES, argument="size") if isinstance(size, str) else EvolvedSize(*size)
    many = _doubled(size.num_heads)
    if size.hidden_dim % 2 or size.hidden_dim % size.num_heads or size.hidden_dim % many:
        raise ValueError(
            f"hidden_dim must be even, and a multiple of num_heads and of the {many} heads of the first attention of a "
            f"decoder's cell. Received: {size}"
        )
    return size
