"""Mixtral."""

from __future__ import annotations

from collections.abc import Sequence

import keras

from keras_transformer.feedforward import MixtureOfExperts, TopKRouter
from keras_transformer.layers.norms import RMSNormalization
from keras_transformer.models.building.rotary_attention import GroupedSize, get_grouped_size, rotary_attention
from keras_transformer.models.building.size import Size
from keras_transformer.models.text.decoders.decoder import Decoder
from keras_transformer.positions import Rotary
from keras_transformer.utils.types import Activation

# Jiang et al., arXiv 2401.04088, table 1, and the checkpoints.
SIZES = {
    "8x7B": GroupedSize(Size(32, 4096, 32, 14336), 8, 128),
    "8x22B": GroupedSize(Size(56, 6144, 48, 16384), 8, 128),
}


def Mixtral(
    size: str | Size = "8x7B",
    vocabulary_size: int = 32000,
    *,
    num_key_value_heads: int | None = None,
    key_dim: int | None = None,
    router: TopKRouter | None = None,
    window: int | Sequence[int | None] | None = None,
    position: Rotary | None = None,
    activation: Activation = "silu",
    attention_dropout: float = 0.0,
    rms_norm_epsilon: float = 1e-5,
    name: str = "mixtral",
) -> keras.Model:
    """The decoder of Mixtral: Mistral's with mixture-of-experts feed-forwards.

    Args:
        size: "8x7B", "8x22B", or a `Size`, whose `intermediate_dim` is that of each expert.
        vocabulary_size: int. V.
        num_key_value_heads: int or None. Number of key/value heads, a divisor of the number of heads. None: that of the
            named size, or the number of heads.
        key_dim: int or None. Size of each head. None: that of the named size, or `D / N`.
        router: `feedforward.TopKRouter` to copy, or None for 2 of 8 experts.
        window: int or None. Sliding window: the number of tokens that a token attends to, itself included; None for all
            previous tokens.
        position: `positions.Rotary`, or None for `Rotary(1e6, "halves")`.
        activation: activation of the gate of each expert.
        attention_dropout: float in [0, 1). Of the attention weights.
        rms_norm_epsilon: float > 0. Of every norm.
        name: str.

    Returns:
        `keras.Model`: {"token_ids": int32 `(B, T)`, "padding_mask": bool `(B, T)`} to `(B, T, D)`.

    Raises:
        ValueError: unknown size name; `num_key_value_heads` does not divide the number of heads.

    Example:

    >>> from keras_transformer.feedforward import TopKRouter
    >>> Mixtral(Size(2, 16, 4, 24), vocabulary_size=100, router=TopKRouter(3)).output_shape
    (None, None, 16)

    Reference: Jiang et al., Mixtral of Experts, arXiv 2401.04088, section 2.
    """
    grouped = get_grouped_size(size, SIZES, num_key_value_heads, key_dim)
    router = TopKRouter(8, load_balancing_weight=0.02) if router is None else router
    position = position or Rotary(1e6, "halves")
    return Decoder(
        grouped.size,
        vocabulary_size,
        position=None,
        norm=RMSNormalization(epsilon=rms_norm_epsilon),
        attention=rotary_attention(grouped, position, window=window, dropout=attention_dropout),
        feedforward=MixtureOfExperts(grouped.size.intermediate_dim, router, activation=activation),
        name=name,
    )
