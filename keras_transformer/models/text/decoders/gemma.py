"""Gemma."""

from __future__ import annotations

import math

import keras

from keras_transformer.feedforward import GatedFeedForward
from keras_transformer.layers.norms import ZeroCenteredRMSNormalization
from keras_transformer.models.building.rotary_attention import GroupedSize, get_grouped_size, rotary_attention
from keras_transformer.models.building.size import Size
from keras_transformer.models.text.decoders.decoder import Decoder
from keras_transformer.positions import Rotary
from keras_transformer.utils.types import Activation

# Gemma Team, arXiv 2403.08295, table 1; of its two feed-forward dimensions together, half.
SIZES = {
    "2B": GroupedSize(Size(18, 2048, 8, 16384), 1, 256),
    "7B": GroupedSize(Size(28, 3072, 16, 24576), 16, 256),
}


def Gemma(
    size: str | Size = "2B",
    vocabulary_size: int = 256000,
    *,
    num_key_value_heads: int | None = None,
    key_dim: int | None = None,
    position: Rotary | None = None,
    use_attention_bias: bool = False,
    activation: Activation = "gelu_tanh",
    attention_dropout: float = 0.0,
    rms_norm_epsilon: float = 1e-6,
    name: str = "gemma",
) -> keras.Model:
    """The decoder of Gemma: rotary positions, GeGLU, zero-centered RMS norms, token embeddings times `√D`.

    Args:
        size: "2B", "7B", or a `Size`.
        vocabulary_size: int. V.
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
        `keras.Model`: {"token_ids": int32 `(B, T)`, "padding_mask": bool `(B, T)`} to `(B, T, D)`.

    Raises:
        ValueError: unknown size name; `num_key_value_heads` does not divide the number of heads.

    Example:

    >>> Gemma(Size(2, 16, 4, 24), vocabulary_size=100, num_key_value_heads=1, key_dim=8).output_shape
    (None, None, 16)

    Reference: Gemma Team, Gemma, arXiv 2403.08295, section 2.
    """
    grouped = get_grouped_size(size, SIZES, num_key_value_heads, key_dim)
    position = position or Rotary(layout="halves")
    return Decoder(
        grouped.size,
        vocabulary_size,
        position=None,
        norm=ZeroCenteredRMSNormalization(epsilon=rms_norm_epsilon),
        embedding_scale=math.sqrt(grouped.size.hidden_dim),
        attention=rotary_attention(grouped, position, dropout=attention_dropout, use_bias=use_attention_bias),
        feedforward=GatedFeedForward(grouped.size.intermediate_dim, activation),
        name=name,
    )
