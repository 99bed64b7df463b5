"""Mistral."""

from __future__ import annotations

from collections.abc import Sequence

import keras

from keras_transformer.feedforward import GatedFeedForward
from keras_transformer.layers.norms import RMSNormalization
from keras_transformer.models.building.rotary_attention import GroupedSize, get_grouped_size, rotary_attention
from keras_transformer.models.building.size import Size
from keras_transformer.models.text.decoders.decoder import Decoder
from keras_transformer.positions import Rotary
from keras_transformer.utils.types import Activation

# Jiang et al., arXiv 2310.06825, table 1.
SIZES = {"7B": GroupedSize(Size(32, 4096, 32, 14336), 8, 128)}


def Mistral(
    size: str | Size = "7B",
    vocabulary_size: int = 32000,
    *,
    num_key_value_heads: int | None = None,
    key_dim: int | None = None,
    window: int | Sequence[int | None] | None = 4096,
    position: Rotary | None = None,
    activation: Activation = "silu",
    attention_dropout: float = 0.0,
    rms_norm_epsilon: float = 1e-5,
    name: str = "mistral",
) -> keras.Model:
    """The decoder of Mistral: Llama's with sliding-window attention, whose cache has a fixed size.

    Args:
        size: "7B", or a `Size`.
        vocabulary_size: int. V.
        num_key_value_heads: int or None. Number of key/value heads, a divisor of the number of heads. None: that of the
            named size, or the number of heads.
        key_dim: int or None. Size of each head. None: that of the named size, or `D / N`.
        window: int, or None for all tokens before, as since version 0.2: number of tokens that a token attends to, itself
            included.
        position: `positions.Rotary`, or None for `Rotary(10000.0, "halves")`.
        activation: activation of the gate.
        attention_dropout: float in [0, 1). Of the attention weights.
        rms_norm_epsilon: float > 0. Of every norm.
        name: str.

    Returns:
        `keras.Model`: {"token_ids": int32 `(B, T)`, "padding_mask": bool `(B, T)`} to `(B, T, D)`.

    Raises:
        ValueError: unknown size name; `num_key_value_heads` does not divide the number of heads.

    Example:

    >>> Mistral(Size(2, 16, 4, 24), vocabulary_size=100, num_key_value_heads=2, window=8).output_shape
    (None, None, 16)

    Reference: Jiang et al., Mistral 7B, arXiv 2310.06825, section 2.
    """
    grouped = get_grouped_size(size, SIZES, num_key_value_heads, key_dim)
    position = position or Rotary(layout="halves")
    return Decoder(
        grouped.size,
        vocabulary_size,
        position=None,
        norm=RMSNormalization(epsilon=rms_norm_epsilon),
        attention=rotary_attention(grouped, position, window=window, dropout=attention_dropout),
        feedforward=GatedFeedForward(grouped.size.intermediate_dim, activation),
        name=name,
    )
