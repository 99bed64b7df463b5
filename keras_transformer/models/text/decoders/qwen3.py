"""Qwen3."""

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

# Yang et al., arXiv 2505.09388, table 1, and the checkpoints.
SIZES = {
    "0.6B": GroupedSize(Size(28, 1024, 16, 3072), 8, 128),
    "1.7B": GroupedSize(Size(28, 2048, 16, 6144), 8, 128),
    "4B": GroupedSize(Size(36, 2560, 32, 9728), 8, 128),
    "8B": GroupedSize(Size(36, 4096, 32, 12288), 8, 128),
    "14B": GroupedSize(Size(40, 5120, 40, 17408), 8, 128),
    "32B": GroupedSize(Size(64, 5120, 64, 25600), 8, 128),
}


def Qwen3(
    size: str | Size = "0.6B",
    vocabulary_size: int = 151936,
    *,
    num_key_value_heads: int | None = None,
    key_dim: int | None = None,
    window: int | Sequence[int | None] | None = None,
    position: Rotary | None = None,
    use_attention_bias: bool = False,
    activation: Activation = "silu",
    attention_dropout: float = 0.0,
    rms_norm_epsilon: float = 1e-6,
    name: str = "qwen3",
) -> keras.Model:
    """The decoder of Qwen3: Llama's, with a norm of each query and key head before the rotary positions.

    Args:
        size: "0.6B", "1.7B", "4B", "8B", "14B", "32B", or a `Size`.
        vocabulary_size: int. V.
        num_key_value_heads: int or None. Number of key/value heads, a divisor of the number of heads. None: that of the
            named size, or the number of heads.
        key_dim: int or None. Size of each head. None: that of the named size, or `D / N`.
        window: int or None, or a list of these that repeats over the blocks. Sliding window: the number of tokens that
            a token attends to, itself included; None for all previous tokens.
        position: `positions.Rotary`, or None for `Rotary(1e6, "halves")`.
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

    >>> Qwen3(Size(2, 16, 4, 24), vocabulary_size=100, num_key_value_heads=2, key_dim=6).output_shape
    (None, None, 16)

    Reference: Yang et al., Qwen3 Technical Report, arXiv 2505.09388, section 2.
    """
    grouped = get_grouped_size(size, SIZES, num_key_value_heads, key_dim)
    norm = RMSNormalization(epsilon=rms_norm_epsilon)
    attention = rotary_attention(
        grouped,
        position or Rotary(1e6, "halves"),
        window=window,
        dropout=attention_dropout,
        query_key_norm=norm,
        use_bias=use_attention_bias,
    )
    return Decoder(
        grouped.size,
        vocabulary_size,
        position=None,
        norm=norm,
        attention=attention,
        feedforward=GatedFeedForward(grouped.size.intermediate_dim, activation),
        name=name,
    )
