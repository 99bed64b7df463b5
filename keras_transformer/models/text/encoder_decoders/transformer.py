"""The encoder-decoder Transformer of Attention Is All You Need."""

from __future__ import annotations

import math
from typing import NamedTuple

import keras

from keras_transformer.blocks import DecoderBlock, DeepNormResidual, EncoderBlock, Residual
from keras_transformer.layers.dropout import Dropout
from keras_transformer.models.building.encoder_decoder import Side, encoder_decoder, token_tables
from keras_transformer.models.building.size import Size, get_size
from keras_transformer.models.building.stack import (
    final_norm,
    first_layer,
    make_attention,
    make_cross_attention,
    make_feed_forward,
    make_norm,
    of_block,
    resolve_residual,
    split_position,
)
from keras_transformer.utils.serialization import clone
from keras_transformer.utils.types import Activation, AttentionLike, Config, PositionLike

# Vaswani et al., table 3.
SIZES = {
    "base": Size(num_layers=6, hidden_dim=512, num_heads=8, intermediate_dim=2048),
    "big": Size(num_layers=6, hidden_dim=1024, num_heads=16, intermediate_dim=4096),
}


def Transformer(
    size: str | Size = "base",
    vocabulary_size: int = 37000,
    *,
    decoder_size: str | Size | None = None,
    target_vocabulary_size: int | None = None,
    tie_embeddings: bool = True,
    scale_embeddings: bool = True,
    position: PositionLike = "sinusoidal",
    max_sequence_length: int = 1024,
    embedding_norm: bool = False,
    residual: str | Residual = "post",
    norm: str | keras.layers.Layer = "layer_norm",
    attention: AttentionLike = None,
    feedforward: str | keras.layers.Layer = "dense",
    activation: Activation = "relu",
    dropout: float = 0.1,
    attention_dropout: float = 0.0,
    hidden_dropout: float = 0.0,
    name: str = "transformer",
) -> keras.Model:
    """The encoder-decoder Transformer up to its head. `tasks.LanguageModel` adds the head.

    Args:
        size: "base", "big", or a `Size`.
        vocabulary_size: int. Of the source; the default is that of the paper's English-German.
        decoder_size: `Size` of the decoder, as wide as the encoder; None for that of the encoder.
        target_vocabulary_size: int, or None for `vocabulary_size`.
        tie_embeddings: bool. Whether source and target share one table (which `tasks.LanguageModel` shares too, by default).
        scale_embeddings: bool. Whether token vectors are multiplied by `√D`.
        position: "sinusoidal" (the paper), "learned", or an instance of either, of which each side has a copy; or None.
        max_sequence_length: int. The table of "learned".
        embedding_norm: bool. Whether the sum of token and position is normalized, before its dropout.
        residual: a name in `blocks.RESIDUALS`, such as "post" (the paper), or an instance to copy.
        norm: "layer_norm", "rms_norm", "batch_norm", or a layer to copy.
        attention: a name in `attention.MECHANISMS`, or a layer like `MultiHeadAttention` to copy for every
            attention; or a list of these, which the blocks of each side take in turn, from the first again after the last.
            What serves self-attention alone leaves cross-attention to softmax.
        feedforward: a name in `feedforward.FEEDFORWARDS`, or an instance to copy.
        activation: activation of a feed-forward that is given by name.
        dropout: float in [0, 1). Of the embeddings, and of what attention and feed-forward give; the paper's big has 0.3.
        attention_dropout: float in [0, 1). Of the attention weights; with an `attention` instance, set it there.
        hidden_dropout: float in [0, 1). Of the hidden layer of a feed-forward given by name.
        name: str.

    Returns:
        `keras.Model`: {"source_token_ids", "target_token_ids": int32 `(B, S)`, `(B, T)`; "source_padding_mask",
        "target_padding_mask": bool} to the decoder's `(B, T, D)`.

    Raises:
        ValueError: unknown name of a size or a part; a position that acts inside attention (give it to `attention`); tied
            tables of different vocabularies; sides of different widths.

    Example:

    >>> from keras_transformer.models import Size
    >>> Transformer(Size(1, 16, 2, 32), vocabulary_size=100).output_shape
    (None, None, 16)

    Reference: Vaswani et al., arXiv 1706.03762, sections 3.1 to 3.5, with the options above. The projections of attention
    have biases, on which the paper is silent.
    """
    size, decoder_size = _sizes(size, decoder_size)
    scale = math.sqrt(size.hidden_dim) if scale_embeddings else None
    added = _added_position(position, max_sequence_length)
    front = _Front(scale, added, norm if embedding_norm else None, dropout)
    depth = decoder_size.num_layers
    encoder_residual = resolve_residual(residual, norm, DeepNormResidual.of_encoder, size.num_layers, depth)
    decoder_residual = resolve_residual(residual, norm, DeepNormResidual.of_decoder, depth)
    sublayers = _Sublayers(attention, feedforward, activation, attention_dropout, hidden_dropout)
    options: Config = {"norm": norm, "dropout": dropout}
    encoder_blocks = _encoder_blocks(size, sublayers, {**options, "residual": encoder_residual})
    decoder_blocks = _decoder_blocks(decoder_size, sublayers, {**options, "residual": decoder_residual})
    tables = token_tables(size.hidden_dim, vocabulary_size, target_vocabulary_size, tie_embeddings)
    source_front = front.layers(tables[0], "source", encoder_residual)
    target_front = front.layers(tables[1], "target", decoder_residual)
    source = Side(source_front, encoder_blocks, [final_norm(encoder_residual, norm, "encoder_final_norm")])
    target = Side(target_front, decoder_blocks, [final_norm(decoder_residual, norm, "decoder_final_norm")])
    return encoder_decoder(source, target, name=name)


def _sizes(size: str | Size, decoder_size: str | Size | None) -> tuple[Size, Size]:
    """The `Size` of each side, which are of one width."""
    size = get_size(size, SIZES)
    decoder_size = size if decoder_size is None else get_size(decoder_size, SIZES)
    if decoder_size.hidden_dim != size.hidden_dim:
        raise ValueError(f"Both sides are of one width. Received: {size.hidden_dim} and {decoder_size.hidden_dim}.")
    return size, decoder_size


def _added_position(position: PositionLike, max_sequence_length: int) -> keras.layers.Layer | None:
    """The layer that adds positions to the embedding, or None."""
    added, inside = split_position(position, max_sequence_length)
    if inside is not None:
        raise ValueError(f"{position!r} acts inside attention: give it to the attention.")
    return added


class _Front(NamedTuple):
    """What is between the token table of a side and its blocks; None for what is left out."""

    scale: float | None
    position: keras.layers.Layer | None
    norm: str | keras.layers.Layer | None
    dropout: float

    def layers(self, table: keras.layers.Layer, side: str, residual: str | Residual) -> list[keras.layers.Layer | None]:
        """Returns the table and new layers of the side that it is named after."""
        return [
            table,
            None if self.scale is None else keras.layers.Rescaling(self.scale, name=f"{side}_scale"),
            clone(self.position, name=f"{side}_position"),
            None if self.norm is None else make_norm(self.norm, f"{side}_embedding_norm"),
            Dropout(self.dropout, name=f"{side}_dropout"),
            first_layer(residual, f"{side}_open_streams"),
        ]


class _Sublayers(NamedTuple):
    """The sublayers of the blocks; new layers at each call."""

    attention: AttentionLike
    feedforward: str | keras.layers.Layer
    activation: Activation
    attention_dropout: float
    hidden_dropout: float

    def mixer_and_feed_forward(self, size: Size, index: int) -> tuple[keras.layers.Layer, keras.layers.Layer]:
        """Returns the self-attention and the feed-forward of a block."""
        return (
            make_attention(size, of_block(self.attention, index), dropout=self.attention_dropout),
            make_feed_forward(size.intermediate_dim, self.feedforward, self.activation, dropout=self.hidden_dropout),
        )

    def cross_attention(self, size: Size, index: int) -> keras.layers.Layer:
        """Returns the cross-attention of a block."""
        return make_cross_attention(size, of_block(self.attention, index), dropout=self.attention_dropout)


def _encoder_blocks(size: Size, sublayers: _Sublayers, options: Config) -> list[EncoderBlock]:
    return [
        EncoderBlock(*sublayers.mixer_and_feed_forward(size, index), name=f"encoder_block_{index}", **options)
        for index in range(size.num_layers)
    ]


def _decoder_blocks(size: Size, sublayers: _Sublayers, options: Config) -> list[DecoderBlock]:
    return [
        DecoderBlock(
            *sublayers.mixer_and_feed_forward(size, index),
            cross_attention=sublayers.cross_attention(size, index),
            name=f"decoder_block_{index}",
            **options,
        )
        for index in range(size.num_layers)
    ]
