"""Gemma 3, its text model."""

from __future__ import annotations

import functools
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
from keras_transformer.utils.types import Activation, Config

# Gemma Team, arXiv 2503.19786, table 1, and the checkpoints.
SIZES = {
    "270M": GroupedSize(Size(18, 640, 4, 2048), 1, 256),
    "1B": GroupedSize(Size(26, 1152, 4, 6912), 1, 256),
    "4B": GroupedSize(Size(34, 2560, 8, 10240), 4, 256),
    "12B": GroupedSize(Size(48, 3840, 16, 15360), 8, 256),
    "27B": GroupedSize(Size(62, 5376, 32, 21504), 16, 128),
}


def Gemma3(
    size: str | Size = "1B",
    vocabulary_size: int = 262144,
    *,
    num_key_value_heads: int | None = None,
    key_dim: int | None = None,
    query_scale: float | None = None,
    score_soft_cap: float | None = None,
    window: int | Sequence[int | None] | None = (512, 512, 512, 512, 512, None),
    position: Rotary | None = None,
    local_position: Rotary | None = None,
    use_attention_bias: bool = False,
    activation: Activation = "gelu_tanh",
    attention_dropout: float = 0.0,
    rms_norm_epsilon: float = 1e-6,
    name: str = "gemma3",
) -> keras.Model:
    """The decoder of Gemma 3: Gemma 2's, with query and key norms instead of soft caps, and more sliding-window blocks.

    Args:
        size: "270M", "1B", "4B", "12B", "27B", or a `Size`. The three large ones have windows of 1024, and positions scaled
            by 8: `Rotary(1e6, "halves", scaling=LinearScaling(8.0))`.
        vocabulary_size: int. V; 262208 from "4B" on.
        num_key_value_heads: int or None. Number of key/value heads, a divisor of the number of heads. None: that of the
            named size, or the number of heads.
        key_dim: int or None. Size of each head. None: that of the named size, or `D / N`.
        query_scale: float, or None for `1 / √key_dim`. Of products of queries and keys; 27B has `1 / √168`.
        score_soft_cap: float > 0, or None. See `attention.SoftCappedDot`.
        window: a list of int, number of tokens that a token attends to, itself included, and None for all tokens before,
            that repeats over the blocks.
        position: `positions.Rotary` of blocks that see all tokens, or None for one of wavelength 1000000 that turns halves.
        local_position: `positions.Rotary` of blocks with a window, or None for one of wavelength 10000 that turns halves.
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

    >>> Gemma3(Size(2, 16, 4, 24), vocabulary_size=100, num_key_value_heads=2, window=(8, None)).output_shape
    (None, None, 16)

    Reference: Gemma Team, Gemma 3 Technical Report, arXiv 2503.19786, section 2.
    """
    grouped = get_grouped_size(size, SIZES, num_key_value_heads, key_dim)
    norm = ZeroCenteredRMSNormalization(epsilon=rms_norm_epsilon)
    position, local_position = position or Rotary(1e6, "halves"), local_position or Rotary(layout="halves")
    scoring = functools.partial(capped_scoring, query_scale, score_soft_cap)
    options: Config = {"dropout": attention_dropout, "query_key_norm": norm, "use_bias": use_attention_bias}
    templates = [
        rotary_attention(
            grouped, position if width is None else local_position, window=width, scoring=scoring(), **options
        )
        for width in (window if isinstance(window, Sequence) else (window,))
    ]
    return Decoder(
        grouped.size,
        vocabulary_size,
        position=None,
        residual="sandwich",
        norm=norm,
        embedding_scale=math.sqrt(grouped.size.hidden_dim),
        attention=templates,
        feedforward=GatedFeedForward(grouped.size.intermediate_dim, activation),
        name=name,
    )
