"""The Recurrent Memory Transformer."""

from __future__ import annotations

import keras

from keras_transformer.blocks import DecoderBlock, MemoryStack, Residual
from keras_transformer.models.building.size import Size, get_size
from keras_transformer.models.building.stack import (
    final_norm,
    make_attention,
    make_feed_forward,
    padding_input,
    split_position,
    token_input,
)
from keras_transformer.models.text.decoders.decoder import SIZES
from keras_transformer.positions import AttentionPosition
from keras_transformer.utils.types import Activation, AttentionLike, Config, PositionLike


def RecurrentMemory(
    size: str | Size,
    vocabulary_size: int,
    *,
    segment_length: int,
    num_memory_tokens: int = 10,
    gradient_segments: int | None = None,
    position: PositionLike = "learned",
    residual: str | Residual = "pre",
    norm: str | keras.layers.Layer = "layer_norm",
    attention: AttentionLike = None,
    feedforward: str | keras.layers.Layer = "dense",
    activation: Activation = "gelu_tanh",
    dropout: float = 0.0,
    name: str = "recurrent_memory",
) -> keras.Model:
    """A decoder with segment-level recurrence: memory tokens are passed from each segment to the next.

    Training backpropagates through the segments of a row; generation uses a cache of one segment and its memory.

    Args:
        size: "small", "medium", "large", "xl" (the sizes of GPT-2), or a `Size`.
        vocabulary_size: int. V.
        segment_length: int >= 1. S. Rows of training data should have a multiple of S tokens.
        num_memory_tokens: int >= 1. m. Default 10.
        gradient_segments: int >= 1, or None for all. Number of segments that gradients pass through; see
            `blocks.MemoryStack`.
        position: "learned" (`m + S + m` positions), the name of a position inside attention, an instance, or None.
        residual: name in `blocks.RESIDUALS`, or an instance to copy.
        norm: "layer_norm", "rms_norm", or a layer to copy.
        attention: a layer like `MultiHeadAttention` to copy for each block, with its own position and a
            cache of all keys.
        feedforward: "dense", "gated", or an instance to copy.
        activation: activation of a feed-forward that is given by name.
        dropout: float in [0, 1). Of the embedding, the attention weights, and the outputs of attention and feed-forward.
        name: str.

    Returns:
        `keras.Model`: {"token_ids": int32 `(B, T)`, "padding_mask": bool `(B, T)`} to `(B, T, D)`.

    Raises:
        ValueError: unknown name of a size or a part; sizes below 1; a position that is added to the embedding, other than
            "learned"; parts that `blocks.MemoryStack` does not support.

    Example:

    >>> from keras_transformer.models import Size
    >>> model = RecurrentMemory(Size(2, 16, 2, 32), vocabulary_size=100, segment_length=8, num_memory_tokens=2)
    >>> model.output_shape
    (None, None, 16)

    Reference: Bulatov et al., Recurrent Memory Transformer, arXiv 2207.06881, around GPT-2 as in the authors' code.
    """
    size = get_size(size, SIZES)
    inside = None if position == "learned" else _inside_attention(position)
    options: Config = {"residual": residual, "norm": norm, "dropout": dropout}
    blocks = _blocks(size, attention, inside, feedforward, activation, options)
    stack = MemoryStack(
        blocks,
        num_memory_tokens,
        segment_length,
        gradient_segments=gradient_segments,
        norm=final_norm(residual, norm),
        learned_positions=position == "learned",
        dropout=dropout,
        name="memory_stack",
    )
    embedding = keras.layers.ReversibleEmbedding(vocabulary_size, size.hidden_dim, name="token_embedding")
    inputs = {"token_ids": token_input(), "padding_mask": padding_input()}
    x = stack(embedding(inputs["token_ids"]), padding_mask=inputs["padding_mask"])
    return keras.Model(inputs, x, name=name)


def _blocks(
    size: Size,
    attention: AttentionLike,
    position: AttentionPosition | None,
    feedforward: str | keras.layers.Layer,
    activation: Activation,
    options: Config,
) -> list[DecoderBlock]:
    return [
        DecoderBlock(
            make_attention(size, attention, position, options["dropout"]),
            make_feed_forward(size.intermediate_dim, feedforward, activation),
            name=f"decoder_block_{index}",
            **options,
        )
        for index in range(size.num_layers)
    ]


def _inside_attention(position: PositionLike) -> AttentionPosition | None:
    """A position inside attention, by name or instance; an error for one that is added to the embedding."""
    added, inside = split_position(position, 0)
    if added is not None:
        raise ValueError(
            f"position must be 'learned' or inside attention: memory tokens have no index. Received: {added.name!r}"
        )
    return inside
