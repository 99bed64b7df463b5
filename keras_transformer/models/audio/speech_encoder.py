"""The graph that encoders of speech share: samples, frames, positions, blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import keras

from keras_transformer.attention import ChunkedAttention, Mechanism, MultiHeadAttention
from keras_transformer.audio import ConvolutionalPosition, FeatureEncoder, FrameMask, SpanMasking
from keras_transformer.blocks import EncoderBlock, Residual, StreamingEncoderBlock
from keras_transformer.layers.dropout import Dropout
from keras_transformer.models.building.size import Size
from keras_transformer.models.building.stack import final_norm, make_feed_forward
from keras_transformer.positions import AttentionPosition
from keras_transformer.utils.serialization import clone
from keras_transformer.utils.types import Activation


class SpeechFrames(NamedTuple):
    """What turns samples into the frames that the blocks read.

    Attributes:
        width: int. D.
        feature_encoder, position: layers to copy; None for those of the base model of wav2vec 2.0.
        span_masking: layer to copy, or None.
        norm: norm layer to copy for the features, or None.
        dropout: float. Of the projected frames.
    """

    width: int
    feature_encoder: FeatureEncoder | None = None
    position: ConvolutionalPosition | None = None
    span_masking: SpanMasking | None = None
    norm: keras.layers.Layer | None = None
    dropout: float = 0.0

    def __call__(
        self, samples: keras.KerasTensor, padding_mask: keras.KerasTensor
    ) -> tuple[keras.KerasTensor, keras.KerasTensor]:
        """Returns the frames, `(B, T, D)`, and their padding mask."""
        encode = clone(self.feature_encoder or FeatureEncoder(), name="feature_encoder")
        x = encode(samples, padding_mask=padding_mask)
        mask = FrameMask(encode.kernel_sizes, encode.strides, name="frame_mask")(padding_mask)
        x = x if self.norm is None else clone(self.norm, name="feature_norm")(x)
        x = keras.layers.Dense(self.width, name="feature_projection")(x)
        x = Dropout(self.dropout, name="feature_dropout")(x)
        if self.span_masking is not None:
            x, _ = clone(self.span_masking, name="span_masking")(x, padding_mask=mask)
        return clone(self.position or ConvolutionalPosition(), name="position")(x, padding_mask=mask), mask


def speech_encoder(
    frames: SpeechFrames,
    blocks: Iterable[keras.layers.Layer],
    *,
    residual: str | Residual,
    norm: keras.layers.Layer,
    dropout: float,
    block_adapter: keras.layers.Layer | None = None,
    adapter: keras.layers.Layer | None = None,
    name: str,
) -> keras.Model:
    """The graph of an encoder of speech.

    Args:
        frames: `SpeechFrames`.
        blocks: encoder blocks, see `speech_blocks`.
        residual: "post" or "pre", or a `Residual`, as of the blocks.
        norm: norm layer to copy, before the blocks or after them.
        dropout: float. Of the input of the first block.
        block_adapter: layer to copy after each block, or None.
        adapter: layer to copy after all blocks, or None.
        name: str.

    Returns:
        `keras.Model`: {"samples": float `(B, samples)`, "padding_mask": bool `(B, samples)`} to `(B, T, D)`.
    """
    inputs = {
        "samples": keras.Input((None,), name="samples"),
        "padding_mask": keras.Input((None,), dtype="bool", name="padding_mask"),
    }
    x, mask = frames(**inputs)
    last_norm = final_norm(residual, norm)
    x = clone(norm, name="embedding_norm")(x) if last_norm is None else x
    x = Dropout(dropout, name="embedding_dropout")(x)
    for index, block in enumerate(blocks):
        x = block(x, padding_mask=mask)
        x = x if block_adapter is None else clone(block_adapter, name=f"block_adapter_{index}")(x)
    x = x if last_norm is None else last_norm(x)
    x = x if adapter is None else clone(adapter, name="adapter")(x, padding_mask=mask)[0]
    return keras.Model(inputs, x, name=name)


def speech_blocks(
    size: Size,
    make_attention: Callable[[], MultiHeadAttention],
    *,
    residual: str | Residual,
    norm: keras.layers.Layer,
    activation: Activation,
    dropout: float,
    hidden_dropout: float,
) -> Iterator[keras.layers.Layer]:
    """Yields the blocks of an encoder of speech, each made when it is asked for.

    Those of a `ChunkedAttention` that reads whole chunks can stream.

    Args:
        size: `Size`.
        make_attention: function to the attention of a block, named "self_attention".
        residual: "post" or "pre", or a `Residual` to copy.
        norm: norm layer to copy.
        activation: of the feed-forward.
        dropout: float. Of what attention and feed-forward give.
        hidden_dropout: float. Of the hidden layer of the feed-forward.
    """
    for index in range(size.num_layers):
        attention = make_attention()
        mechanism = attention.mechanism
        streams = isinstance(mechanism, ChunkedAttention) and mechanism.reads_whole_chunks
        yield (StreamingEncoderBlock if streams else EncoderBlock)(
            attention,
            make_feed_forward(size.intermediate_dim, "dense", activation, dropout=hidden_dropout),
            residual=residual,
            norm=norm,
            dropout=dropout,
            name=f"encoder_block_{index}",
        )


def speech_attention(
    size: Size,
    dropout: float,
    mechanism: str | Mechanism = "softmax",
    position: AttentionPosition | None = None,
) -> MultiHeadAttention:
    """Returns the attention of one block, with a copy of a mechanism and a position of its own."""
    return MultiHeadAttention(
        size.num_heads,
        size.hidden_dim // size.num_heads,
        dropout=dropout,
        mechanism=mechanism if isinstance(mechanism, str) else clone(mechanism),
        position=position,
        name="self_attention",
    )
