"""Longformer."""

from __future__ import annotations

from collections.abc import Sequence

import keras

from keras_transformer.attention import LongformerAttention
from keras_transformer.models.building.bert_encoder import bert_encoder
from keras_transformer.models.building.size import Size, get_size
from keras_transformer.models.text.encoders.encoder import SIZES
from keras_transformer.positions import Learned
from keras_transformer.utils.types import Activation


def Longformer(
    size: str | Size = "base",
    vocabulary_size: int = 50265,
    *,
    attention_window: int | Sequence[int] = 512,
    max_global_tokens: int = 128,
    max_sequence_length: int = 4096,
    num_segments: int | None = 1,
    padding_id: int = 1,
    activation: Activation = "gelu",
    dropout: float = 0.1,
    attention_dropout: float = 0.1,
    layer_norm_epsilon: float = 1e-5,
    positions_from_mask: bool = False,
    name: str = "longformer",
) -> keras.Model:
    """The encoder of Longformer: RoBERTa's, with sliding windows, and global tokens that the input names.

    Args:
        size: "base", "large", or a `Size`.
        vocabulary_size: int. V.
        attention_window: even int, or a list of one for each block. Number of keys that a token attends to on both sides.
        max_global_tokens: int >= 1. How many tokens of a row "global_mask" can mark; further ones are as all tokens are.
        max_sequence_length: int. Maximum number of tokens; the position embedding has `padding_id + 1` more rows.
        num_segments: int, or None; 1 adds one and the same vector to every token, and asks for no "segment_ids".
        padding_id: int >= 0. The token of padding; the position of the first token is the one after it.
        activation: activation of the feed-forward.
        dropout: float in [0, 1). Of the embedding, and of the outputs of attention and feed-forward.
        attention_dropout: float in [0, 1). Of the attention weights.
        layer_norm_epsilon: float > 0. Of every norm.
        positions_from_mask: bool. Whether positions count real tokens only, as in the published code: then rows may be
            padded on the left.
        name: str.

    Returns:
        `keras.Model`: {"token_ids": int32 `(B, T)`, "padding_mask": bool `(B, T)`, "global_mask": bool `(B, T)`} to
        `(B, T, D)`. Global tokens see all and are seen by all: the first one for a class, those of a question for an answer.

    Raises:
        ValueError: unknown size name; an odd window.

    Example:

    >>> from keras_transformer.models import Size
    >>> model = Longformer(Size(2, 16, 2, 32), vocabulary_size=100, attention_window=4)
    >>> sorted(model.input), model.output_shape
    (['global_mask', 'padding_mask', 'token_ids'], (None, None, 16))

    Reference: Beltagy et al., Longformer, arXiv 2004.05150, sections 3 and 5; positions and segments as in its published
    code: see `RoBERTa`.
    """
    size = get_size(size, SIZES)
    windows = attention_window if isinstance(attention_window, Sequence) else [attention_window]
    return bert_encoder(
        size,
        vocabulary_size,
        num_segments=num_segments,
        position=Learned(max_sequence_length, offset=padding_id + 1, name="position_embedding"),
        attention=[
            LongformerAttention(
                size.num_heads,
                size.hidden_dim // size.num_heads,
                attention_window=window,
                max_global_tokens=max_global_tokens,
                dropout=attention_dropout,
            )
            for window in windows
        ],
        activation=activation,
        dropout=dropout,
        layer_norm_epsilon=layer_norm_epsilon,
        positions_from_mask=positions_from_mask,
        name=name,
    )
