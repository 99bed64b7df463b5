"""Qwen2."""

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

# Yang et al., arXiv 2407.10671, table 1; Qwen2.5 has the same, and "3B".
SIZES = {
    "0.5B": GroupedSize(Size(24, 896, 14, 4864), 2, 64),
    "1.5B": GroupedSize(Size(28, 1536, 12, 8960), 2, 128),
    "3B": GroupedSize(Size(36, 2048, 16, 11008), 2, 128),
    "7B": GroupedSize(Size(28, 3584, 28, 18944), 4, 128),
    "72B": GroupedSize(Size(80, 8192, 64, 29568), 8, 128),
}
_VOCABULARY, _LARGE_VOCABULARY = 151936, 152064


def vocabulary_of(size: str | Size) -> int:
    """The vocabulary of a published size: padded to a larger one from "7B" on."""
    return _LARGE_VOCABULARY if size in ("7B", "72B") else _VOCABULARY


def Qwen2(
    size: str | Size = "0.5B",
    vocabulary_size: int | None = None,
    *,
    num_key_value_heads: int | None = None,
    key_dim: int | None = None,
    window: int | Sequence[int | None] | None = None,
    position: Rotary | None = None,
    activation: Activation = "silu",
    attention_dropout: float = 0.0,
    rms_norm_epsilon: float = 1e-6,
    name: str = "qwen2",
) -> keras.Model:
    """The decoder of Qwen2 and 2.5: Llama's, with biases for queries, keys and values.

    Args:
        size: "0.5B", "1.5B", "3B", "7B", "72B", or a `Size`.
        vocabulary_size: int or None. V. None: 152064 for "7B" and "72B", else 151936.
        num_key_value_heads: int or None. Number of key/value heads, a divisor of the number of heads. None: that of the
            named size, or the number of heads.
        key_dim: int or None. Size of each head. None: that of the named size, or `D / N`.
        window: int or None, or a list of these that repeats over the blocks. Sliding window: the number of tokens that
            a token attends to, itself included; None for all previous tokens.
        position: `positions.Rotary`, or None for `Rotary(1e6, "halves")`.
        activation: activation of the gate.
        attention_dropout: float in [0, 1). Of the attention weights.
        rms_norm_epsilon: float > 0. Of every norm.
        name: str.

    Returns:
        `keras.Model`: {"token_ids": int32 `(B, T)`, "padding_mask": bool `(B, T)`} to `(B, T, D)`.

    Raises:
        ValueError: unknown size name; `num_key_value_heads` does not divide the number of heads.

    Example:

    >>> Qwen2(Size(2, 16, 4, 24), vocabulary_size=100, num_key_value_heads=2).output_shape
    (None, None, 16)

    Reference: Yang et al., Qwen2 Technical Report, arXiv 2407.10671, section 2.2.
    """
    grouped = get_grouped_size(size, SIZES, num_key_value_heads, key_dim)
    position = position or Rotary(1e6, "halves")
    biases = {"use_bias": True, "use_output_bias": False}
    return Decoder(
        grouped.size,
        vocabulary_size or vocabulary_of(size),
        position=None,
        norm=RMSNormalization(epsilon=rms_norm_epsilon),
        attention=rotary_attention(grouped, position, window=window, dropout=attention_dropout, **biases),
        feedforward=GatedFeedForward(grouped.size.intermediate_dim, activation),
        name=name,
    )
