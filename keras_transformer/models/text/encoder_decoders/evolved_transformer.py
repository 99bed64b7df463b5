"""The Evolved Transformer."""

from __future__ import annotations

import math
from typing import NamedTuple

import keras

from keras_transformer.attention import BranchedConvolution, MultiHeadAttention
from keras_transformer.blocks import BranchedDecoderBlock, BranchedEncoderBlock, DecoderBlock, EncoderBlock, Residual
from keras_transformer.feedforward import DenseFeedForward, GatedLinearUnit
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.norms import LayerNormalization
from keras_transformer.models.building.encoder_decoder import Side, encoder_decoder, token_tables
from keras_transformer.models.building.stack import final_norm, first_layer
from keras_transformer.positions import Sinusoidal
from keras_transformer.utils.serialization import choice
from keras_transformer.utils.types import Config

# Maximum number of heads of the first attention of a decoder cell.
_MOST_HEADS = 16


class EvolvedSize(NamedTuple):
    """Size of an Evolved Transformer. A cell has the depth of two Transformer blocks.

    Attributes:
        num_encoder_layers: number of cells of the encoder.
        num_decoder_layers: number of cells of the decoder.
        hidden_dim: width of the tokens D, even; the hidden layers of feed-forwards have 4 D.
        num_heads: attention heads N, each `D // N` wide; the first attention of a decoder cell has 2 N, at most 16.

    Example:

    >>> EvolvedSize(num_encoder_layers=1, num_decoder_layers=1, hidden_dim=16, num_heads=2).hidden_dim
    16
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
    """The Evolved Transformer without its head: an encoder-decoder of cells found by evolutionary search, with gated linear
    units, branched convolutions and attention. `tasks.LanguageModel` adds the head.

    An encoder cell has a gated linear unit, a `BranchedConvolution` (a dense layer and a convolution of kernel size 3, then
    a separable one of 9), self-attention, and a ReLU feed-forward. A decoder cell has self-attention with twice the heads in
    parallel to cross-attention, a causal `BranchedConvolution` (separable ones of 11 and 7, then of 7), and a standard
    block: self-attention, cross-attention, and a swish feed-forward with a norm on its hidden layer. Its cache holds the
    keys and values of both attentions and the inputs of the convolutions.

    Args:
        size: "tiny", "base", "big", "deep", or an `EvolvedSize`.
        vocabulary_size: int. Vocabulary size of the source; the default is that of the paper for English-German.
        target_vocabulary_size: int, or None for `vocabulary_size`.
        tie_embeddings: bool. Whether source and target share one embedding, as `tasks.LanguageModel` does by default.
        residual: a name in `blocks.RESIDUALS`, such as "pre" (the paper), or an instance to copy; DeepNorm only as an
            instance.
        layer_norm_epsilon: float > 0. Of every norm.
        dropout: float in [0, 1). Of the embeddings, the output of each part, the branches, and the hidden layers of
            feed-forwards.
        attention_dropout: float in [0, 1). Of the attention weights.
        name: str.

    Returns:
        `keras.Model`: {"source_token_ids", "target_token_ids": int32 `(B, S)`, `(B, T)`; "source_padding_mask",
        "target_padding_mask": bool} to the decoder's `(B, T, D)`.

    Raises:
        ValueError: unknown name of a size or residual scheme; an odd width, or one that the heads do not divide; tied
            embeddings of different vocabularies.

    Example:

    >>> EvolvedTransformer(EvolvedSize(1, 1, 16, 2), vocabulary_size=100).output_shape
    (None, None, 16)

    Reference: So et al., The Evolved Transformer, arXiv 1901.11117, figure 3. As in the authors' code, where the
    figure does not specify: no biases in attention, a final norm on each side, the activations of the branches, zero padding
    where branches of different widths are added, and sines before cosines.
    """
    size = _checked(size)
    norm = LayerNormalization(epsilon=layer_norm_epsilon)
    options: Config = {"residual": residual, "norm": norm, "dropout": dropout}
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
            Dropout(dropout, name=f"{side}_dropout"),
            first_layer(residual, f"{side}_open_streams"),
        ]
        cells = [make_cell(size, index, attention_dropout, options) for index in range(num_layers)]
        blocks = [block for cell in cells for block in cell]
        sides.append(Side(front, blocks, [final_norm(residual, norm, f"{side}_final_norm")]))
    return encoder_decoder(*sides, name=name)


def _encoder_cell(size, index, attention_dropout, options):
    """The blocks of an encoder cell."""
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
    """The blocks of a decoder cell."""
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


def _checked(size: str | EvolvedSize) -> EvolvedSize:
    """An `EvolvedSize` from a name or four integers."""
    size = choice(size, SIZES, argument="size") if isinstance(size, str) else EvolvedSize(*size)
    many = _doubled(size.num_heads)
    if size.hidden_dim % 2 or size.hidden_dim % size.num_heads or size.hidden_dim % many:
        raise ValueError(
            f"hidden_dim must be even, and a multiple of num_heads and of the {many} heads of the first attention of a "
            f"decoder cell. Received: {size}"
        )
    return size
