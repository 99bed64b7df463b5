"""The encoder of RETRO's retrieved neighbors."""

from __future__ import annotations

from collections.abc import Sequence

import keras
from keras import ops

from keras_transformer.attention.arguments import positive
from keras_transformer.attention.cache.cached_layer import CachedLayer
from keras_transformer.attention.cache.dense import cache_spec
from keras_transformer.attention.partition.bands import pad_length, take_rows
from keras_transformer.attention.partition.chunk_progress import ChunkProgress
from keras_transformer.layers.dropout import Dropout
from keras_transformer.utils.serialization import build_once, resolve, serializable, serialize
from keras_transformer.utils.types import Cache, Config, DType, LayerLike, Outputs, Shape, Tensor

# The neighbors' tensor in a cache. The caller that retrieves them writes it: see `retrieval.RetrievalSteps`.
NEIGHBORS = "neighbor_token_ids"


@serializable
class NeighborEncoder(CachedLayer):
    """RETRO's neighbor encoder: embeds and encodes the neighbors of each chunk, `E_u = blocks(embedding(neighbors_u), H_u)`.

    H_u are the decoder's hidden states of the m tokens of chunk u. The neighbors of all chunks are encoded in parallel and
    independently. Time and memory grow with `T / m · k · r`, for k neighbors of r tokens per chunk.

    Args:
        vocabulary_size: int. V.
        hidden_dim: int. Width E of the neighbors.
        blocks: list of `NeighborBlock`, or their configs.
        chunk_size: int >= 1. m. Default 64.
        norm: layer after the blocks, or its config; None for none.
        dropout: float in [0, 1). Dropout rate of the embedding.
        seed: int or None. Seed of the dropout.

    Call arguments:
        inputs: float `(B, T, D)`: hidden states of the decoder.
        token_ids: int32 `(B, L, k, r)`: the neighbors of the first L chunks. None with a cache, which contains them.
        neighbor_mask: boolean `(B, L, k, r)`: True = a real token. None with a cache.
        padding_mask: boolean `(B, T)`: with a cache, which of the new tokens, padded on the right, are real; None for all.
            Without a cache it is ignored: padding on the right does not affect the tokens before it.
        cache: dict as `init_cache` returns, or None.
        cache_index: int32 `()` or `(B,)`: the number of tokens that each row has read before.

    Returns:
        `(encoded, neighbor_mask)`: float `(B, L, k · r, E)` and boolean `(B, L, k, r)`. With a cache they cover the
        `ceil(T / m)` chunks from that of the first new token on, and the result is `((encoded, neighbor_mask), next_cache)`.

    Raises:
        ValueError: sizes below 1; unknown numbers or lengths of neighbors when the layer is built.

    The cache holds the last m inputs and the neighbors of all chunks: "neighbor_token_ids", int32 `(B, 1, slots, w)`. The
    `m · w >= k · r` numbers in a chunk's slots are its neighbors' token ids in order, each plus one; 0 is no token. The
    caller writes them before the token that completes the chunk is read, as `retrieval.RetrievalSteps` does. A step that
    completes no chunk encodes nothing.

    Export: all three formats, with and without a cache.

    Example:

    >>> import numpy as np
    >>> from keras_transformer.attention import MultiHeadAttention
    >>> from keras_transformer.blocks import NeighborBlock
    >>> from keras_transformer.feedforward import DenseFeedForward
    >>> block = NeighborBlock(MultiHeadAttention(2, 4), DenseFeedForward(16), MultiHeadAttention(2, 4))
    >>> encoder = NeighborEncoder(vocabulary_size=10, hidden_dim=8, blocks=[block], chunk_size=3)
    >>> token_ids = np.ones((1, 2, 2, 4), "int32")  # Two chunks with 2 neighbors of 4 tokens.
    >>> encoded, mask = encoder(np.ones((1, 6, 12)), token_ids, token_ids > 0)
    >>> tuple(encoded.shape)
    (1, 2, 8, 8)

    Reference: Borgeaud et al., RETRO, arXiv 2112.04426, section 2.4 and algorithm 1.
    """

    cache_is_rewindable = False

    def __init__(
        self,
        vocabulary_size: int,
        hidden_dim: int,
        blocks: Sequence[LayerLike],
        chunk_size: int = 64,
        norm: LayerLike | None = None,
        dropout: float = 0.0,
        seed: int | None = None,
        **kwargs: object,
    ) -> None:
        super().__init__(**kwargs)
        self.vocabulary_size = positive("vocabulary_size", vocabulary_size)
        self.hidden_dim = positive("hidden_dim", hidden_dim)
        self.blocks = [resolve(block, {}, keras.layers.Layer, argument="block") for block in blocks]
        self.chunk_size = positive("chunk_size", chunk_size)
        self.norm = resolve(norm, {}, keras.layers.Layer, argument="norm")
        self.dropout = dropout
        self.seed = seed
        self.embedding = keras.layers.Embedding(vocabulary_size, hidden_dim, name="embedding", dtype=self.dtype_policy)
        self._dropout_layer = Dropout(dropout, seed=seed, dtype=self.dtype_policy)

    def build(self, inputs_shape: Shape, token_ids_shape: Shape, neighbor_mask_shape: Shape | None = None) -> None:
        if None in token_ids_shape[2:]:
            raise ValueError(f"The number and the length of the neighbors must be static. Received: {token_ids_shape}")
        self._width, self._neighbors = inputs_shape[-1], tuple(token_ids_shape[2:])
        self.embedding.build(token_ids_shape)
        mask_shape = (None, *self._neighbors)
        shape = (None, self._neighbors[0] * self._neighbors[1], self.hidden_dim)
        for block in self.blocks:
            build_once(block, shape, (None, self.chunk_size, self._width), mask_shape)
        if self.norm is not None:
            build_once(self.norm, shape)

    def call(
        self,
        inputs: Tensor,
        token_ids: Tensor | None = None,
        neighbor_mask: Tensor | None = None,
        padding_mask: Tensor | None = None,
        cache: Cache | None = None,
        cache_index: Tensor | None = None,
        training: bool | None = None,
    ) -> tuple[Outputs, Tensor | Cache | None]:
        if cache is not None:
            return self._extend(inputs, padding_mask, cache, cache_index)
        length = ops.shape(token_ids)[1] * self.chunk_size
        chunks = pad_length(inputs, 0, length)[:, :length]
        neighbor_mask = ops.cast(neighbor_mask, "bool")
        return self._encode(chunks, token_ids, neighbor_mask, training), neighbor_mask

    def _encode(self, chunks, token_ids, mask, training=None):
        """`(B, L · m, D)` and `(B, L, k, r)` to `(B, L, k · r, E)`."""
        length = self._neighbors[0] * self._neighbors[1]
        x = self.embedding(ops.reshape(token_ids, (-1, length)))
        x = self._dropout_layer(x, training=training)
        chunks = ops.reshape(chunks, (-1, self.chunk_size, self._width))
        flat_mask = ops.reshape(mask, (-1, *self._neighbors))
        for block in self.blocks:
            x = block(x, chunks, flat_mask, training=training)
        x = x if self.norm is None else self.norm(x)
        return ops.reshape(x, (-1, ops.shape(token_ids)[1], length, self.hidden_dim))

    def _extend(self, x, padding_mask, cache, cache_index):
        size, recent = self.chunk_size, cache["recent_inputs"]
        progress = ChunkProgress(size, x, padding_mask, cache_index)
        reach = progress.count * size
        joined = ops.concatenate([recent, ops.cast(x, recent.dtype)], axis=1)
        # The number of tokens between the start of the first new token's chunk and that token.
        starts = progress.broadcast(size - ops.mod(progress.index, size))
        chunks = ops.cast(take_rows(pad_length(joined, 0, size), starts, reach), self.compute_dtype)
        stored = self._stored(cache[NEIGHBORS], progress)
        mask, token_ids = stored > 0, ops.maximum(stored - 1, 0)

        def nothing():
            shape = (ops.shape(x)[0], progress.count, stored.shape[2] * stored.shape[3], self.hidden_dim)
            return ops.zeros(shape, dtype=self.compute_dtype)

        encoded = ops.cond(progress.fills_any, lambda: self._encode(chunks, token_ids, mask), nothing)
        encoded = ops.reshape(encoded, (-1, progress.count, stored.shape[2] * stored.shape[3], self.hidden_dim))
        following = take_rows(joined, progress.broadcast(progress.tokens), size)
        return (encoded, mask), {**cache, "recent_inputs": following}

    def _stored(self, slab, progress):
        """Returns the cached neighbors of the chunks from that of the first new token on, `(B, C, k, r)`."""
        size, (count, length) = self.chunk_size, self._neighbors
        reach = progress.count * size
        starts = progress.broadcast(progress.index // size * size)
        slab = ops.reshape(slab, (-1, ops.shape(slab)[2], slab.shape[3]))
        rows = take_rows(pad_length(slab, 0, reach), starts, reach)
        rows = ops.reshape(rows, (-1, size * slab.shape[2]))[:, : count * length]
        return ops.reshape(rows, (-1, progress.count, count, length))

    def init_cache(self, batch_size: int, max_length: int, dtype: DType = None) -> Cache:
        """Returns the empty cache, without inputs and neighbors, for `max_length` tokens."""
        if not self.built:
            raise ValueError(
                f"{self.name}: build the layer before init_cache; the cache depends on the neighbors' shape."
            )
        dtype = dtype or self.compute_dtype
        share = share_of_slot(self.chunk_size, *self._neighbors)
        return {
            "recent_inputs": ops.zeros((batch_size, self.chunk_size, self._width), dtype=dtype),
            NEIGHBORS: ops.zeros((batch_size, 1, max_length, share), dtype="int32"),
        }

    def compute_output_spec(
        self,
        inputs: Tensor,
        token_ids: Tensor | None = None,
        *args: object,
        cache: Cache | None = None,
        **options: object,
    ) -> Outputs:
        num_chunks = token_ids.shape[1] if cache is None and token_ids is not None else None
        shape = (inputs.shape[0], num_chunks)
        count, length = self._neighbors if self.built or token_ids is None else token_ids.shape[2:]
        encoded = keras.KerasTensor((*shape, count * length, self.hidden_dim), dtype=self.compute_dtype)
        output = (encoded, keras.KerasTensor((*shape, count, length), dtype="bool"))
        return output if cache is None else (output, cache_spec(cache))

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "vocabulary_size": self.vocabulary_size,
            "hidden_dim": self.hidden_dim,
            "blocks": [serialize(block) for block in self.blocks],
            "chunk_size": self.chunk_size,
            "norm": serialize(self.norm),
            "dropout": self.dropout,
            "seed": self.seed,
        }


def share_of_slot(chunk_size: int, num_neighbors: int, neighbor_length: int) -> int:
    """Returns how many of a chunk's neighbor tokens are stored in each of its cache slots."""
    return -(-num_neighbors * neighbor_length // chunk_size)
