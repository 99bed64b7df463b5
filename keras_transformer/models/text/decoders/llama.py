"""Llama."""

from __future__ import annotations

import keras

from keras_transformer.feedforward import GatedFeedForward
from keras_transformer.layers.norms import RMSNormalization
from keras_transformer.models.building.rotary_attention import GroupedSize, get_grouped_size, rotary_attention
from keras_transformer.models.building.size import Size
from keras_transformer.models.text.decoders.decoder import Decoder
from keras_transformer.positions import Llama3Scaling, Rotary
from keras_transformer.utils.types import Activation

# Touvron et al., Llama 2, table 1, and arXiv 2302.13971, table 2; Grattafiori et al., table 3; the cards of Llama 3.2.
SIZES = {
    "2-7B": GroupedSize(Size(32, 4096, 32, 11008), 32, 128),
    "2-13B": GroupedSize(Size(40, 5120, 40, 13824), 40, 128),
    "2-70B": GroupedSize(Size(80, 8192, 64, 28672), 8, 128),
    "3-8B": GroupedSize(Size(32, 4096, 32, 14336), 8, 128),
    "3-70B": GroupedSize(Size(80, 8192, 64, 28672), 8, 128),
    "3.2-1B": GroupedSize(Size(16, 2048, 32, 8192), 8, 64),
    "3.2-3B": GroupedSize(Size(28, 3072, 24, 8192), 8, 128),
}
# By the first part of the name of a size; the cards of the checkpoints.
_VOCABULARIES = {"2": 32000, "3": 128256, "3.2": 128256}
_POSITIONS = {
    "2": lambda: Rotary(layout="halves"),
    "3": lambda: Rotary(500000.0, "halves"),
    "3.2": lambda: Rotary(500000.0, "halves", scaling=Llama3Scaling(32.0, original_max_sequence_length=8192)),
}


def Llama(
    size: str | Size = "2-7B",
    vocabulary_size: int | None = None,
    *,
    num_key_value_heads: int | None = None,
    key_dim: int | None = None,
    position: Rotary | None = None,
    use_attention_bias: bool = False,
    use_feedforward_bias: bool = False,
    activation: Activation = "silu",
    attention_dropout: float = 0.0,
    rms_norm_epsilon: float = 1e-5,
    name: str = "llama",
) -> keras.Model:
    """The decoder of Llama: pre-norm blocks of grouped heads with rotary positions, and SwiGLU.

    Named sizes have the vocabulary and the positions of the published checkpoints; 3.1 differs from 3 by
    `position=Rotary(500000.0, "halves", scaling=Llama3Scaling(...))`. The head is
    `tasks.LanguageModel(..., tie_embeddings=False)`; that of 3.2 is tied.

    Args:
        size: "2-7B", "2-13B", "2-70B", "3-8B", "3-70B", "3.2-1B", "3.2-3B", or a `Size`.
        vocabulary_size: int or None. V. None: that of the named size, 128256 from 3 on, or 32000.
        num_key_value_heads: int or None. Number of key/value heads, a divisor of the number of heads. None: that of the
            named size, or the number of heads.
        key_dim: int or None. Size of each head. None: that of the named size, or `D / N`.
        position: `positions.Rotary`, or None for that of the named size, or `Rotary(10000.0, "halves")`.
        use_attention_bias: bool. Whether the four projections of attention have biases.
        use_feedforward_bias: bool.
        activation: activation of the gate.
        attention_dropout: float in [0, 1). Of the attention weights.
        rms_norm_epsilon: float > 0. Of every norm.
        name: str.

    Returns:
        `keras.Model`: {"token_ids": int32 `(B, T)`, "padding_mask": bool `(B, T)`} to `(B, T, D)`.

    Raises:
        ValueError: unknown size name; `num_key_value_heads` does not divide the number of heads.

    Example:

    >>> Llama(Size(2, 16, 4, 24), vocabulary_size=100, num_key_value_heads=2).output_shape
    (None, None, 16)

    Reference: Touvron et al., LLaMA, arXiv 2302.13971, section 2.2; Llama 2, arXiv 2307.09288; Grattafiori et al., The Llama
    3 Herd of Models, arXiv 2407.21783, section 3.2.
    """
    grouped = get_grouped_size(size, SIZES, num_key_value_heads, key_dim)
    generation = size.partition("-")[0] if isinstance(size, str) else "2"
    position = position or _POSITIONS[generation]()
    return Decoder(
        grouped.size,
        vocabulary_size or _VOCABULARIES[generation],
        position=None,
        norm=RMSNormalization(epsilon=rms_norm_epsilon),
        attention=rotary_attention(grouped, position, dropout=attention_dropout, use_bias=use_attention_bias),
        feedforward=GatedFeedForward(grouped.size.intermediate_dim, activation, use_bias=use_feedforward_bias),
        name=name,
    )
