"""The encoder of BERT and its relatives."""

from __future__ import annotations

from typing import Any

import keras

from keras_transformer.layers.norms import LayerNormalization
from keras_transformer.models.building.size import Size
from keras_transformer.models.building.stack import make_attention
from keras_transformer.models.text.encoders.encoder import Encoder
from keras_transformer.utils.types import AttentionLike


def bert_encoder(
    size: Size,
    vocabulary_size: int,
    *,
    layer_norm_epsilon: float,
    attention: AttentionLike = None,
    attention_dropout: float | None = None,
    **options: Any,
) -> keras.Model:
    """Post-norm encoder blocks over normalized embeddings.

    Args:
        size: `Size`.
        vocabulary_size: int. V.
        layer_norm_epsilon: float > 0. Of every norm.
        attention: see `Encoder`. None for softmax attention.
        attention_dropout: float in [0, 1): dropout of the attention weights, without `attention`; None for `dropout`.
        **options: the other arguments of `Encoder`.

    Returns:
        `keras.Model`: see `Encoder`.
    """
    if attention is None and attention_dropout is not None:
        attention = make_attention(size, dropout=attention_dropout)
    norm = LayerNormalization(epsilon=layer_norm_epsilon)
    return Encoder(
        size, vocabulary_size, residual="post", norm=norm, embedding_norm=True, attention=attention, **options
    )
