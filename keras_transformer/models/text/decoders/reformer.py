"""Reformer."""

from __future__ import annotations

from collections.abc import Sequence

import keras

from keras_transformer.attention import ChunkedAttention, LSHAttention, MultiHeadAttention
from keras_transformer.attention.mechanism import Mechanism
from keras_transformer.blocks import ReversibleBlock, ReversibleStack
from keras_transformer.feedforward import DenseFeedForward
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.norms import LayerNormalization
from keras_transformer.models.building.size import Size
from keras_transformer.models.building.stack import padding_input, token_input
from keras_transformer.positions import Learned
from keras_transformer.utils.serialization import choice, clone
from keras_transformer.utils.types import Activation

# The checkpoints published by Google for novels and for enwik8, with heads of 64 and 128 channels.
SIZES = {
    "novel": Size(6, 256, 2, 512),
    "enwik8": Size(12, 1024, 8, 4096),
}
_PARTS = ("local", "lsh")


def Reformer(
    size: str | Size,
    vocabulary_size: int,
    *,
    layers: Sequence[str] = _PARTS,
    key_dim: int = 64,
    local: Mechanism | None = None,
    lsh: Mechanism | None = None,
    causal: bool = True,
    position: keras.layers.Layer | None = None,
    max_sequence_length: int = 4096,
    activation: Activation = "relu",
    dropout: float = 0.05,
    layer_norm_epsilon: float = 1e-12,
    reversible: bool = True,
    name: str = "reformer",
) -> keras.Model:
    """A stack of reversible blocks with alternating local and LSH attention, for long sequences in little memory.

    Args:
        size: "novel", "enwik8", or a `Size`, whose heads need not divide its width.
        vocabulary_size: int. V.
        layers: sequence of "local" and "lsh", which repeats over the blocks.
        key_dim: int >= 1. Width of the heads.
        local: mechanism that each local block copies. None: `ChunkedAttention()`.
        lsh: mechanism that each LSH block copies. None: `LSHAttention()`. With `attend_across_buckets`, as published, it has
            no cache.
        causal: bool. Whether attention is causal. Default True.
        position: layer that adds positions to the embedding, such as `positions.Axial`; None for `positions.Learned`.
        max_sequence_length: int. Rows of a learned position embedding.
        activation: activation of the feed-forward.
        dropout: float in [0, 1). Of the embedding, of the outputs of attention and feed-forward, and of the output.
        layer_norm_epsilon: float > 0. Of every norm.
        reversible: bool. Whether training recomputes activations instead of storing them: see
            `blocks.ReversibleStack`.
        name: str.

    Returns:
        `keras.Model`: {"token_ids": int32 `(B, T)`, "padding_mask": bool `(B, T)`} to both streams, `(B, T, 2 D)`.

    Raises:
        ValueError: unknown name of a size or a part.

    Example:

    >>> from keras_transformer.models import Size
    >>> Reformer(Size(2, 16, 2, 32), vocabulary_size=100, key_dim=4).output_shape
    (None, None, 32)

    Reference: Kitaev et al., Reformer, arXiv 2001.04451; measures and local blocks: its published weights. Dropout follows
    the sum of token and position, not each; the feed-forward is not computed in chunks.
    """
    size = choice(size, SIZES, argument="size") if isinstance(size, str) else Size(*size)
    norm = LayerNormalization(epsilon=layer_norm_epsilon)
    # Layers
    embedding = keras.layers.ReversibleEmbedding(vocabulary_size, size.hidden_dim, name="token_embedding")
    mechanisms = {"local": local or ChunkedAttention(), "lsh": lsh or LSHAttention()}
    chosen = [choice(layers[index % len(layers)], mechanisms) for index in range(size.num_layers)]
    blocks = _blocks(size, key_dim, chosen, activation, causal, norm, dropout)
    stack = ReversibleStack(blocks, reversible=reversible, name="stack")
    table = Learned(max_sequence_length, name="position_embedding") if position is None else position
    # Graph
    inputs = {"token_ids": token_input(), "padding_mask": padding_input()}
    x = table(embedding(inputs["token_ids"]))
    x = Dropout(dropout, name="embedding_dropout")(x)
    x = stack(x, padding_mask=inputs["padding_mask"])
    x = clone(norm, name="final_norm")(x)
    return keras.Model(inputs, Dropout(dropout, name="output_dropout")(x), name=name)


def _blocks(
    size: Size,
    key_dim: int,
    mechanisms: Sequence[Mechanism],
    activation: Activation,
    causal: bool,
    norm: keras.layers.Layer,
    dropout: float,
) -> list[ReversibleBlock]:
    return [
        ReversibleBlock(
            MultiHeadAttention(
                size.num_heads, key_dim, use_bias=False, mechanism=clone(mechanism), name="self_attention"
            ),
            DenseFeedForward(size.intermediate_dim, activation, dropout=dropout, name="feedforward"),
            causal=causal,
            norm=norm,
            dropout=dropout,
            name=f"reversible_block_{index}",
        )
        for index, mechanism in enumerate(mechanisms)
    ]
