"""RETRO: a decoder with cross-attention to retrieved neighbors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import keras

from keras_transformer.attention import ChunkedCrossAttention, MultiHeadAttention
from keras_transformer.blocks import (
    RESIDUALS,
    ChunkedCrossBlock,
    DecoderBlock,
    NeighborBlock,
    NeighborEncoder,
    Residual,
)
from keras_transformer.layers.dropout import Dropout
from keras_transformer.models.building.size import Size, get_size
from keras_transformer.models.building.stack import (
    final_norm,
    make_feed_forward,
    padding_input,
    split_position,
    token_input,
)
from keras_transformer.positions import AttentionPosition
from keras_transformer.utils.serialization import choice, clone, resolve
from keras_transformer.utils.types import Activation, Config


class RetroSize(NamedTuple):
    """Size of a RETRO stack.

    Attributes:
        num_layers: the number of blocks.
        hidden_dim: width of the tokens.
        num_heads: attention heads N.
        intermediate_dim: width of the hidden layer of the feed-forward.
        key_dim: width of a head.

    Example:

    >>> RetroSize(num_layers=2, hidden_dim=16, num_heads=2, intermediate_dim=32, key_dim=8).key_dim
    8
    """

    num_layers: int
    hidden_dim: int
    num_heads: int
    intermediate_dim: int
    key_dim: int


# Table 1 of the paper; its numbers of parameters, from 172M to 7.5B, exclude embeddings.
SIZES = {
    "172M": RetroSize(12, 896, 16, 3584, 64),
    "425M": RetroSize(12, 1536, 12, 6144, 128),
    "1.5B": RetroSize(24, 2048, 16, 8192, 128),
    "7.5B": RetroSize(32, 4096, 32, 16384, 128),
}
ENCODER_SIZE = RetroSize(2, 896, 16, 3584, 64)


def RETRO(
    size: str | Size | RetroSize,
    vocabulary_size: int,
    *,
    encoder_size: str | Size | RetroSize = ENCODER_SIZE,
    chunk_size: int = 64,
    num_neighbors: int = 2,
    neighbor_length: int | None = None,
    retrieval_layers: Sequence[int] | None = None,
    encoder_retrieval_layers: Sequence[int] = (1,),
    position: str | Config | AttentionPosition | None = "transformer_xl",
    residual: str | Residual = "pre",
    norm: str | keras.layers.Layer = "rms_norm",
    feedforward: str | keras.layers.Layer = "dense",
    activation: Activation = "gelu_tanh",
    dropout: float = 0.0,
    name: str = "retro",
) -> keras.Model:
    """A decoder in which some blocks attend to the encoded neighbors of each chunk. `tasks.LanguageModel` adds the head.

    The text is split into chunks of m tokens. Each chunk has k neighbors, retrieved from a `retrieval.ChunkDatabase`:
    passages of r tokens, a similar chunk and its continuation. An encoder computes them, with cross-attention to the chunk
    at the first retrieval layer. The last token of the chunk and the next m - 1 tokens attend to its output. No token
    before the last of a chunk depends on the neighbors of the chunk; without neighbors the model is a plain decoder.

    Args:
        size: "172M", "425M", "1.5B", "7.5B" (the sizes of the paper), a `RetroSize`, or a `Size`.
        vocabulary_size: int. V.
        encoder_size: `RetroSize` or `Size` of the encoder of neighbors; by default the paper's, 2 layers of width 896.
        chunk_size: int >= 2. m.
        num_neighbors: int >= 1. k.
        neighbor_length: int >= 1, or None for `2 · chunk_size`. r.
        retrieval_layers: ints from 1 to the number of layers: the blocks that attend to neighbors; None for 6, 9, 12, ...,
            as in the paper.
        encoder_retrieval_layers: ints from 1: the blocks of the encoder that attend to the chunk.
        position: a name in `positions.ATTENTION_POSITIONS`, an instance to copy for every attention, or None.
        residual: a name in `blocks.RESIDUALS` of a scheme with one stream, or an instance to copy.
        norm: "layer_norm", "rms_norm", "batch_norm", or a layer to copy.
        feedforward: a name in `feedforward.FEEDFORWARDS`, or an instance to copy.
        activation: activation of a feed-forward that is given by name.
        dropout: float in [0, 1). Of the embeddings, the attention weights, and the output of each sublayer.
        name: str.

    Returns:
        `keras.Model`: {"token_ids": int32 `(B, T)`, "padding_mask": bool `(B, T)`, "neighbor_token_ids": int32
        `(B, L, k, r)`, "neighbor_mask": bool `(B, L, k, r)`} to `(B, T, D)`. L is the number of chunks with
        neighbors, at most all of them.

    Raises:
        ValueError: unknown name of a size or a part; no retrieval layer, or one out of range; a position that is added to
            the embedding.

    Generation uses no neighbors by default; `retrieval.with_retrieval` retrieves them for each complete chunk.

    Example:

    >>> from keras_transformer.models import Size
    >>> small = Size(2, 16, 2, 32)
    >>> model = RETRO(small, vocabulary_size=100, encoder_size=small, chunk_size=4, retrieval_layers=(2,))
    >>> model.output_shape, model.input["neighbor_token_ids"].shape
    ((None, None, 16), (None, None, 2, 8))

    Reference: Borgeaud et al., RETRO, arXiv 2112.04426, section 2 and algorithm 1. Scores are scaled by `1 / √H`, and
    relative positions have the biases of Transformer-XL. The encoder has its own token embedding.
    """
    size, encoder_size = _with_heads(size), _with_heads(encoder_size)
    layers = tuple(range(6, size.num_layers + 1, 3)) if retrieval_layers is None else tuple(retrieval_layers)
    _check(layers, size.num_layers, "retrieval_layers")
    _check(encoder_retrieval_layers, encoder_size.num_layers, "encoder_retrieval_layers")
    if resolve(residual, RESIDUALS, Residual, argument="residual").num_streams > 1:
        raise ValueError("residual must be a scheme with one stream.")
    options: Config = {"residual": residual, "norm": norm, "dropout": dropout}
    own = _Sublayers(size, _inside_attention(position), feedforward, activation, dropout)
    encoder = NeighborEncoder(
        vocabulary_size,
        encoder_size.hidden_dim,
        _neighbor_blocks(own._replace(size=encoder_size), encoder_retrieval_layers, options),
        chunk_size=chunk_size,
        norm=final_norm(residual, norm, name="neighbor_norm"),
        dropout=dropout,
        name="neighbor_encoder",
    )
    inputs = _inputs(num_neighbors, neighbor_length or 2 * chunk_size)
    x = keras.layers.ReversibleEmbedding(vocabulary_size, size.hidden_dim, name="token_embedding")(inputs["token_ids"])
    x = Dropout(dropout, name="embedding_dropout")(x)
    x, last_norm = _decoded(x, inputs, encoder, own, layers, options), final_norm(residual, norm)
    return keras.Model(inputs, x if last_norm is None else last_norm(x), name=name)


def _inputs(num_neighbors: int, neighbor_length: int) -> dict[str, keras.KerasTensor]:
    """The symbolic inputs by name."""
    shape = (None, num_neighbors, neighbor_length)
    return {
        "token_ids": token_input(),
        "padding_mask": padding_input(),
        "neighbor_token_ids": keras.Input(shape, dtype="int32", name="neighbor_token_ids"),
        "neighbor_mask": keras.Input(shape, dtype="bool", name="neighbor_mask"),
    }


def _decoded(
    x: keras.KerasTensor,
    inputs: dict[str, keras.KerasTensor],
    encoder: NeighborEncoder,
    sublayers: _Sublayers,
    retrieval_layers: Sequence[int],
    options: Config,
) -> keras.KerasTensor:
    """The output of the decoder blocks; those of `retrieval_layers` attend to neighbors, encoded at the first of them."""
    mask, neighbors = inputs["padding_mask"], None
    for index in range(sublayers.size.num_layers):
        retrieves = index + 1 in retrieval_layers
        parts = (sublayers.attention(), None if retrieves else sublayers.feed_forward())
        x = DecoderBlock(*parts, name=f"decoder_block_{index}", **options)(x, padding_mask=mask)
        if not retrieves:
            continue
        if neighbors is None:
            found = {"token_ids": inputs["neighbor_token_ids"], "neighbor_mask": inputs["neighbor_mask"]}
            neighbors = encoder(x, **found)
        parts = (ChunkedCrossAttention(sublayers.attention(), encoder.chunk_size), sublayers.feed_forward())
        block = ChunkedCrossBlock(*parts, name=f"chunked_cross_block_{index}", **options)
        x = block(x, *neighbors, padding_mask=mask)
    return x


class _Sublayers(NamedTuple):
    """Sublayers of the decoder or encoder blocks; new layers at each call."""

    size: RetroSize
    position: AttentionPosition | None
    feedforward: str | keras.layers.Layer
    activation: Activation
    dropout: float

    def attention(self, name: str = "attention") -> MultiHeadAttention:
        own = {"dropout": self.dropout, "use_bias": False, "position": clone(self.position)}
        return MultiHeadAttention(self.size.num_heads, self.size.key_dim, name=name, **own)

    def feed_forward(self) -> keras.layers.Layer:
        return make_feed_forward(self.size.intermediate_dim, self.feedforward, self.activation)


def _neighbor_blocks(sublayers, retrieval_layers, options):
    """The blocks of the encoder, with cross-attention to the chunk in `retrieval_layers`."""

    def block(index):
        cross_attention = sublayers.attention("cross_attention") if index + 1 in retrieval_layers else None
        parts = (sublayers.attention(), sublayers.feed_forward(), cross_attention)
        return NeighborBlock(*parts, name=f"neighbor_block_{index}", **options)

    return [block(index) for index in range(sublayers.size.num_layers)]


def _inside_attention(position):
    """A position inside attention, by name or instance; an error for one that is added to the embedding."""
    added, inside = split_position(position, 0)
    if added is not None:
        raise ValueError(f"{added.name!r} is added to the embedding: use a position inside attention.")
    return inside


def _with_heads(size: str | Size | RetroSize) -> RetroSize:
    """A `RetroSize` from a name, a `RetroSize`, or a `Size` with heads of `hidden_dim / num_heads`."""
    found = choice(size, SIZES, argument="size") if isinstance(size, str) else size
    if len(found) == len(RetroSize._fields):
        return RetroSize(*found)
    shared = get_size(Size(*found), {})
    return RetroSize(*shared, shared.hidden_dim // shared.num_heads)


def _check(chosen, count, name):
    if name == "retrieval_layers" and not chosen:
        raise ValueError(f"retrieval_layers selects none of the {count} layers.")
    if any(not 1 <= layer <= count for layer in chosen):
        raise ValueError(f"{name} must be in [1, {count}]. Received: {tuple(chosen)}")
