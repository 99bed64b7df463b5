"""Mixtral."""

from __future__ import annotations

from collections.abc import Sequence

import keras

from keras_transformer.feedforward import MixtureOfExperts, TopKRouter
from keras_transformer.models.building.llama_decoder import llama_decoder
from keras_transformer.models.building.rotary_attention import GroupedSize, get_grouped_size
from keras_transformer.models.building.size import Size
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
    router: keras.layers.Layer | None = None,
    window: int | Sequence[int | None] | None = None,
    position: Rotary | None = None,
    activation: Activation = "silu",
    attention_dropout: float = 0.0,
    rms_norm_epsilon: float = 1e-5,
    name: str = "mixtral",
) -> keras.Model:
    """The decoder of Mixtral: Mistral's, whose feed-forwards are mixtures of experts.

    Args:
        size: "8x7B", "8x22B", or a `Size`, whose `intermediate_dim` is that of each expert.
        vocabulary_size: int. V.
        num_key_value_heads: int that divides the number of heads; None for that of the named size, or as many.
        key_dim: int: width of each head; None for that of the named size, or `D / N`.
        router: `feedforward.TopKRouter` to copy, or None for 2 of 8 experts.
        window: int, or None for all tokens before: how many tokens a token sees, itself included.
        position: `positions.Rotary`, or None for one of wavelength 1000000 that turns halves.
        activation: of the gate of an expert.
        attention_dropout: float in [0, 1). Of the attention weights.
        rms_norm_epsilon: float > 0.
        name: str.

    Returns:
        `keras.Model`: {"token_ids": int32 `(B, T)`, "padding_mask": bool `(B, T)`} to `(B, T, D)`.

    Raises:
        ValueError: unknown name of a size, or heads that do not go into one another.

    Example:

    >>> from keras_transformer.feedforward import TopKRouter
    >>> Mixtral(Size(2, 16, 4, 24), vocabulary_size=100, router=TopKRouter(3)).output_shape
    (None, None, 16)

    Reference: Jiang et al., Mixtral of Experts, arXiv 2401.04088, section 2.
    """
    grouped = get_grouped_size(size, SIZES, num_key_value_heads, key_dim)
    router = TopKRouter(8, load_balancing_weight=0.02) if router is None else router
    return llama_decoder(
        grouped,
        vocabulary_size,
        norm=keras.layers.RMSNormalization(epsilon=rms_norm_epsilon),
        position=position or Rotary(1e6, "halves"),
        window=window,
        feedforward=MixtureOfExperts(grouped.size.intermediate_dim, router, activation=activation),
        attention_dropout=attention_dropout,
        name=name,
    )
