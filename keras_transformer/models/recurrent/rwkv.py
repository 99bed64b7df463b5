"""RWKV-4."""

from __future__ import annotations

import keras

from keras_transformer.blocks import DecoderBlock
from keras_transformer.layers.norms import LayerNormalization
from keras_transformer.models.building.size import Size, get_size
from keras_transformer.models.building.stack import padding_input, token_input
from keras_transformer.recurrence import ChannelMixing, TimeMixing

# Peng et al., section 4. There are no heads: each channel is one.
SIZES = {
    "169M": Size(12, 768, 1, 3072),
    "430M": Size(24, 1024, 1, 4096),
    "1.5B": Size(24, 2048, 1, 8192),
    "3B": Size(32, 2560, 1, 10240),
    "7B": Size(32, 4096, 1, 16384),
    "14B": Size(40, 5120, 1, 20480),
}


def RWKV(
    size: str | Size,
    vocabulary_size: int,
    *,
    channels: int | None = None,
    chunk_size: int = 8,
    dropout: float = 0.0,
    layer_norm_epsilon: float = 1e-5,
    final_norm_epsilon: float | None = None,
    name: str = "rwkv",
) -> keras.Model:
    """The decoder of RWKV-4: blocks of time mixing and channel mixing, whose state has a fixed size.

    Args:
        size: "169M", "430M", "1.5B", "3B", "7B", "14B", or a `Size`, whose `num_heads` is not read.
        vocabulary_size: int. V.
        channels: int >= 1, or None for D. Of time mixing.
        chunk_size: int >= 1. Tokens per parallel chunk; it affects speed only.
        dropout: float in [0, 1). Of the outputs of time mixing and channel mixing.
        layer_norm_epsilon: float > 0. Of every norm.
        final_norm_epsilon: float > 0, or None for `layer_norm_epsilon`. Of the norm behind the last block.
        name: str.

    Returns:
        `keras.Model`: {"token_ids": int32 `(B, T)`, "padding_mask": bool `(B, T)`} to `(B, T, D)`.

    Raises:
        ValueError: unknown size name.

    Example:

    >>> from keras_transformer.models import Size
    >>> RWKV(Size(2, 16, 1, 32), vocabulary_size=100).output_shape
    (None, None, 16)

    Reference: Peng et al., arXiv 2305.13048, section 3.
    """
    size = get_size(size, SIZES)
    norm = LayerNormalization(epsilon=layer_norm_epsilon)
    # Layers
    embedding = keras.layers.ReversibleEmbedding(vocabulary_size, size.hidden_dim, name="token_embedding")
    blocks = [
        DecoderBlock(
            TimeMixing(channels, index, size.num_layers, chunk_size=chunk_size, name="time_mixing"),
            ChannelMixing(size.intermediate_dim, index, size.num_layers, name="channel_mixing"),
            norm=norm,
            dropout=dropout,
            name=f"decoder_block_{index}",
        )
        for index in range(size.num_layers)
    ]
    # Graph
    inputs = {"token_ids": token_input(), "padding_mask": padding_input()}
    x = embedding(inputs["token_ids"])
    x = LayerNormalization(epsilon=layer_norm_epsilon, name="embedding_norm")(x)
    for block in blocks:
        x = block(x, padding_mask=inputs["padding_mask"])
    last_epsilon = layer_norm_epsilon if final_norm_epsilon is None else final_norm_epsilon
    x = LayerNormalization(epsilon=last_epsilon, name="final_norm")(x)
    return keras.Model(inputs, x, name=name)
