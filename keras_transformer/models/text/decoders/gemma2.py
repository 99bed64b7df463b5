"""Gemma 2."""

from __future__ import annotations

import math
from collections.abc import Sequence

import keras

from keras_transformer.feedforward import GatedFeedForward
from keras_transformer.layers.norms import ZeroCenteredRMSNormalization
from keras_transformer.models.building.rotary_attention import (
    GroupedSize,
    capped_scoring,
    get_grouped_size,
    rotary_attention,
)
from keras_transformer.models.building.size import Size
from keras_transformer.models.text.decoders.decoder import Decoder
from keras_transformer.positions import Rotary
from keras_transformer.utils.types import Activation

# Gemma Team, arXiv 2408.00118, table 1; of its two feed-forward dimensions together, half.
SIZES = {
    "2B": GroupedSize(Size(26, 2304, 8, 9216), 4, 256),
    "9B": GroupedSize(Size(42, 3584, 16, 14336), 8, 256),
    "27B": GroupedSize(Size(46, 4608, 32, 36864), 16, 128),
}


def Gemma2(
    size: str | Size = "2B",
    vocabulary_size: int = 256000,
    *,
    num_key_value_heads: int | None = None,
    key_dim: int | None = None,
    query_scale: float | None = None,
    score_soft_cap: float | None = 50.0,
    window: int | Sequence[int | None] | None = (4096, None),
    position: Rotary | None = None,
    use_attention_bias: bool = False,
    activation: Activation = "gelu_tanh",
    attention_dropout: float = 0.0,
    rms_norm_epsilon: float = 1e-6,
    name: str = "gemma2",
) -> keras.Model:
    """The decoder of Gemma 2: Gemma's, with norms before and after each sublayer, soft-capped scores, and
    sliding-window attention in every other block.

    `tasks.LanguageModel(..., logit_soft_cap=30.0)` is its head.

    Args:
        size: "2B", "9B", "27B", or a `Size`.
        vocabulary_size: int. V.
        num_key_value_heads: int or None. Number of key/value heads, a divisor of the number of heads. None: that of the
            named size, or the number of heads.
        key_dim: int or None. Size of each head. None: that of the named size, or `D / N`.
        query_scale: float, or None for `1 / √key_dim`. Of products of queries and keys; 27B has `1 / 12`.
        score_soft_cap: float > 0, or None. See `attention.SoftCappedDot`.
        window: int or None, or a list of these that repeats over the blocks. Sliding window: the number of tokens that
            a token attends to, itself included; None for all previous tokens.
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

    >>> Gemma2(Size(2, 16, 4, 24), vocabulary_size=100, num_key_value_heads=2, window=(8, None)).output_shape
    (None, None, 16)

    Reference: Gemma Team, Gemma 2, arXiv 2408.00118, section 2.
    """
    grouped = get_grouped_size(size, SIZES, num_key_value_heads, key_dim)
    attention = rotary_attention(
        grouped,
        position or Rotary(layout="halves"),
        window=window,
        scoring=capped_scoring(query_scale, score_soft_cap),
        dropout=attention_dropout,
        use_bias=use_attention_bias,
    )
    return Decoder(
        grouped.size,
        vocabulary_size,
        position=None,
        residual="sandwich",
        norm=ZeroCenteredRMSNormalization(epsilon=rms_norm_epsilon),
        embedding_scale=math.sqrt(grouped.size.hidden_dim),
        attention=attention,
        feedforward=GatedFeedForward(grouped.size.intermediate_dim, activation),
        name=name,
    )
