"""RWKV-7."""

from __future__ import annotations

from typing import NamedTuple

import keras

from keras_transformer.blocks import ValueResidualBlock
from keras_transformer.layers.norms import LayerNormalization
from keras_transformer.models.building.size import Size, get_size
from keras_transformer.models.building.stack import make_norm, padding_input, token_input
from keras_transformer.recurrence import ChannelMixing, RWKV7TimeMixing

# Peng et al., table 2: heads are 64 wide.
SIZES = {
    "0.1B": Size(12, 768, 12, 3072),
    "0.4B": Size(24, 1024, 16, 4096),
    "1.5B": Size(24, 2048, 32, 8192),
    "2.9B": Size(32, 2560, 40, 10240),
}


class RWKV7Ranks(NamedTuple):
    """Ranks of the matrix pairs of time mixing: see `recurrence.RWKV7TimeMixing`.

    Attributes:
        decay, rate, gate, value: int >= 1.

    Example:

    >>> RWKV7Ranks.of_width(2048)
    RWKV7Ranks(decay=96, rate=96, gate=256, value=64)
    """

    decay: int
    rate: int
    gate: int
    value: int

    @classmethod
    def of_width(cls, width: int) -> RWKV7Ranks:
        """Returns the ranks of the authors' code for a model of width D: multiples of 32."""
        sizes = (1.8 * width**0.5, 1.8 * width**0.5, 0.6 * width**0.8, 1.3 * width**0.5)
        return cls(*(max(32, round(size / 32) * 32) for size in sizes))


def RWKV7(
    size: str | Size,
    vocabulary_size: int,
    *,
    ranks: RWKV7Ranks | None = None,
    chunk_size: int = 32,
    dropout: float = 0.0,
    norm: keras.layers.Layer | None = None,
    use_embedding_norm: bool = True,
    name: str = "rwkv7",
) -> keras.Model:
    """The decoder of RWKV-7: blocks of time mixing by a generalized delta rule, and of channel mixing.

    The state has a fixed size. Time mixing of all blocks but the first reads the value of the first.

    Args:
        size: "0.1B", "0.4B", "1.5B", "2.9B", or a `Size`.
        vocabulary_size: int. V.
        ranks: `RWKV7Ranks`, or None for those of the authors' code for this width.
        chunk_size: int >= 1. Tokens per parallel chunk; it affects speed only.
        dropout: float in [0, 1). Of the outputs of time mixing and channel mixing.
        norm: layer to copy, or None for layer normalization with an epsilon of 0.00001. The norm of each head has its
            epsilon times the width of a head.
        use_embedding_norm: bool. Whether the token embeddings are normalized.
        name: str.

    Returns:
        `keras.Model`: {"token_ids": int32 `(B, T)`, "padding_mask": bool `(B, T)`} to `(B, T, D)`.

    Raises:
        ValueError: unknown size name; a number of heads that does not divide D.

    Example:

    >>> from keras_transformer.models import Size
    >>> RWKV7(Size(2, 16, 2, 32), vocabulary_size=100).output_shape
    (None, None, 16)

    Reference: Peng et al., RWKV-7 "Goose", arXiv 2503.14456, section 4; ranks are those of the authors' code.
    """
    size = get_size(size, SIZES)
    ranks = ranks or RWKV7Ranks.of_width(size.hidden_dim)
    template: keras.layers.Layer = norm or LayerNormalization(epsilon=1e-5)
    # Layers
    embedding = keras.layers.ReversibleEmbedding(vocabulary_size, size.hidden_dim, name="token_embedding")
    blocks = [
        ValueResidualBlock(
            _time_mixing(index, size, ranks, chunk_size, template.epsilon),
            _channel_mixing(index, size),
            norm=template,
            dropout=dropout,
            name=f"decoder_block_{index}",
        )
        for index in range(size.num_layers)
    ]
    # Graph
    inputs = {"token_ids": token_input(), "padding_mask": padding_input()}
    x, value = embedding(inputs["token_ids"]), None
    if use_embedding_norm:
        x = make_norm(template, "embedding_norm")(x)
    for block in blocks:
        x, value = block(x, value, padding_mask=inputs["padding_mask"])
    return keras.Model(inputs, make_norm(template, "final_norm")(x), name=name)


def _time_mixing(index: int, size: Size, ranks: RWKV7Ranks, chunk_size: int, epsilon: float) -> RWKV7TimeMixing:
    """Time mixing of a block; that of the first has no value of another to read."""
    width = size.hidden_dim // size.num_heads
    return RWKV7TimeMixing(
        size.num_heads,
        ranks.decay,
        ranks.rate,
        ranks.gate,
        ranks.value if index else None,
        chunk_size=chunk_size,
        epsilon=width * epsilon,
        layer_index=index,
        num_layers=size.num_layers,
        name="time_mixing",
    )


def _channel_mixing(index: int, size: Size) -> ChannelMixing:
    depth = {"layer_index": index, "num_layers": size.num_layers}
    return ChannelMixing(size.intermediate_dim, use_receptance=False, name="channel_mixing", **depth)
