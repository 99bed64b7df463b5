"""BERT."""

from __future__ import annotations

import keras

from keras_transformer.models.building.bert_encoder import bert_encoder
from keras_transformer.models.building.size import Size, get_size
from keras_transformer.models.text.encoders.encoder import SIZES
from keras_transformer.utils.types import Activation


def BERT(
    size: str | Size = "base",
    vocabulary_size: int = 30522,
    *,
    max_sequence_length: int = 512,
    num_segments: int | None = 2,
    activation: Activation = "gelu",
    dropout: float = 0.1,
    attention_dropout: float = 0.1,
    layer_norm_epsilon: float = 1e-12,
    name: str = "bert",
) -> keras.Model:
    """The encoder of BERT: post-norm blocks over the normalized sum of token, segment and position embeddings.

    Args:
        size: "base", "large", or a `Size`.
        vocabulary_size: int. V.
        max_sequence_length: int. Rows of the position embedding.
        num_segments: int, or None for no "segment_ids".
        activation: activation of the feed-forward.
        dropout: float in [0, 1). Of the embedding, and of the outputs of attention and feed-forward.
        attention_dropout: float in [0, 1). Of the attention weights.
        layer_norm_epsilon: float > 0. Of every norm.
        name: str.

    Returns:
        `keras.Model`: {"token_ids": int32 `(B, T)`, "padding_mask": bool `(B, T)`, "segment_ids": int32 `(B, T)`} to
        `(B, T, D)`.

    Raises:
        ValueError: unknown size name.

    Example:

    >>> from keras_transformer.models import Size
    >>> BERT(Size(2, 16, 2, 32), vocabulary_size=100).output_shape
    (None, None, 16)

    Reference: Devlin et al., BERT, arXiv 1810.04805, section 3; epsilon, and the norm and dropout of the embedding, as in
    its published code.
    """
    return bert_encoder(
        get_size(size, SIZES),
        vocabulary_size,
        max_sequence_length=max_sequence_length,
        num_segments=num_segments,
        attention_dropout=attention_dropout,
        activation=activation,
        dropout=dropout,
        layer_norm_epsilon=layer_norm_epsilon,
        name=name,
    )
