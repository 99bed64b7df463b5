"""Chunked local attention."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Unpack

import keras
from keras import ops

from keras_transformer.attention.arguments import positive
from keras_transformer.attention.cache.dense import extend_window_cache, init_window_cache
from keras_transformer.attention.masks import Visibility, combine, with_batch_axis
from keras_transformer.attention.mechanisms.softmax_based import SoftmaxBasedMechanism
from keras_transformer.attention.partition.bands import Bands, pad_length, take_rows
from keras_transformer.attention.partition.memory_blocks import MemoryBlocks
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Cache, Config, DType, LayerOptions, Tensor

if TYPE_CHECKING:
    from keras_transformer.positions import AttentionPosition


@serializable
class ChunkedAttention(SoftmaxBasedMechanism):
    """Softmax attention of each chunk of tokens to itself and to neighboring chunks.

    With c = `chunk_length` and `⌊i / c⌋` the chunk of token i,

        y_i = Σ_j softmax_j(scores(q_i, k_j) + bias_ij) v_j   over   ⌊i / c⌋ - before <= ⌊j / c⌋ <= ⌊i / c⌋ + after,

    and j <= i with causality. Time and memory grow with `T · c · (before + 1 + after)`.

    Args:
        chunk_length: int >= 1. c. Default 64.
        chunks_before: int >= 0. Number of attended chunks before a token's own. Default 1.
        chunks_after: int >= 0. Number of attended chunks after it; none with causality. Default 0.
        scoring: a name in `SCORINGS`, or an instance. The default is scaled dot.
        dropout: float in [0, 1). Dropout rate of the attention weights.
        seed: int or None. Seed of the dropout.
        reads_whole_chunks: bool. Whether a call with a cache reads one whole chunk, whose tokens attend to one another:
            calls chunk by chunk give what bidirectional attention to all tokens gives. Otherwise a cache makes attention
            causal. Default False.

    Call arguments: see `Mechanism`. Causal and bidirectional self-attention, all positions. The cache keeps the last
    `c · (before + 1) - 1` keys, independent of `max_length`; of whole chunks the last `c · before`. Its last chunk may be
    padded, on the right.

    Returns:
        The context `(B, T, N, H_value)`; with a cache, `(context, next_cache)`.

    Raises:
        ValueError: numbers out of their range; `reads_whole_chunks` with chunks after; a call with scores, an
            `attention_mask` or other keys than queries; with `reads_whole_chunks` and a cache, another number of tokens than
            that of a chunk.

    Example:

    >>> import numpy as np
    >>> x = np.ones((1, 5, 1, 2))
    >>> values = np.arange(5.0).reshape(1, 5, 1, 1)
    >>> ChunkedAttention(chunk_length=2)(x, x, values).numpy().ravel().tolist()  # The mean of its chunk and the one before.
    [0.5, 0.5, 1.5, 1.5, 3.0]

    Reference: Kitaev et al., Reformer, arXiv 2001.04451, the local layers of its published code. Deviation: without
    causality, the first and the last chunk do not attend to each other, as they do in Hugging Face's implementation.
    """

    supports = frozenset({"causal", "bidirectional", "cache", "bias", "query", "values"})
    cache_is_rewindable = False

    def __init__(
        self,
        chunk_length: int = 64,
        chunks_before: int = 1,
        chunks_after: int = 0,
        scoring: str | Config | keras.layers.Layer = "scaled_dot",
        dropout: float = 0.0,
        seed: int | None = None,
        reads_whole_chunks: bool = False,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(scoring, dropout, seed, **kwargs)
        if min(chunks_before, chunks_after) < 0:
            raise ValueError(
                f"chunks_before and chunks_after must be at least 0. Received: {chunks_before}, {chunks_after}"
            )
        if reads_whole_chunks and chunks_after:
            raise ValueError(
                f"reads_whole_chunks needs chunks_after=0: later chunks are not read. Received: {chunks_after}"
            )
        self.chunk_length = positive("chunk_length", chunk_length)
        self.reads_whole_chunks = reads_whole_chunks
        self.chunks_before = chunks_before
        self.chunks_after = chunks_after
        self._memory = chunks_before * chunk_length
        self._kept = self._memory + (0 if reads_whole_chunks else chunk_length - 1)

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        visibility: Visibility,
        position: AttentionPosition | None = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
    ) -> Tensor:
        options = {"position": position, "training": training}
        if self._is_short(query):
            return self.softmax(query, key, value, visibility=visibility, **options)
        bands = Bands(self.chunk_length, self.chunks_before, 0 if visibility.causal else self.chunks_after)
        context = self.softmax(
            bands.blocks(query),
            bands.neighbors(key),
            bands.neighbors(value),
            visibility=bands.visibility(visibility, query, key),
            **options,
        )
        return bands.join(context, ops.shape(query)[1])

    def init_cache(
        self, batch_size: int, max_length: int, num_heads: int, key_dim: int, value_dim: int, dtype: DType
    ) -> Cache:
        return init_window_cache(batch_size, self._kept, num_heads, key_dim, value_dim, dtype)

    def extend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        cache: Cache,
        cache_index: Tensor | None,
        visibility: Visibility,
        position: AttentionPosition | None = None,
        training: bool | None = None,
        **options: Any,
    ) -> tuple[Tensor, Cache]:
        if self.reads_whole_chunks:
            return self._extend_by_chunk(query, key, value, cache, cache_index, visibility, position, training)
        key, value, slots, cache = extend_window_cache(cache, key, value, cache_index, visibility.query_mask)
        visibility = dataclasses.replace(visibility, query_mask=None, key_slots=slots, key_positions=slots)
        attend = self._attend_few if self._is_short(query) else self._attend_many
        return attend(query, key, value, visibility, position, training), cache

    def _extend_by_chunk(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        cache: Cache,
        cache_index: Tensor | None,
        visibility: Visibility,
        position: AttentionPosition | None,
        training: bool | None,
    ) -> tuple[Tensor, Cache]:
        """Attention of the tokens of one chunk to one another and to the chunks before."""
        if query.shape[1] != self.chunk_length:
            raise ValueError(
                f"{self.name} reads whole chunks of {self.chunk_length} tokens. Received: {query.shape[1]} tokens"
            )
        batch, real = ops.shape(query)[0], visibility.query_mask
        # Padding ends a sequence: what it leaves in the cache is not read.
        key, value, slots, cache = extend_window_cache(cache, key, value, cache_index)
        slots = with_batch_axis(slots, batch)
        key_mask = slots >= 0
        if real is not None:
            before = ops.ones((batch, self._memory), dtype="bool")
            key_mask = combine(key_mask, ops.concatenate([before, ops.cast(real, "bool")], axis=1))
        visible = dataclasses.replace(visibility, key_mask=key_mask, causal=False, key_slots=slots, key_positions=slots)
        return self.softmax(query, key, value, visibility=visible, position=position, training=training), cache

    def _attend_few(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        visibility: Visibility,
        position: AttentionPosition | None,
        training: bool | None,
    ):
        """Returns the context of a few new tokens, with the chunks as a mask of cached and new keys."""
        first = visibility.query_slots - ops.mod(visibility.query_slots, self.chunk_length) - self._memory
        key_slots = with_batch_axis(visibility.key_slots)
        mask = ops.greater_equal(ops.expand_dims(key_slots, 1), ops.expand_dims(first, 2))
        visible = dataclasses.replace(visibility, key_mask=key_slots >= 0, attention_mask=mask)
        return self.softmax(query, key, value, visibility=visible, position=position, training=training)

    def _attend_many(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        visibility: Visibility,
        position: AttentionPosition | None,
        training: bool | None,
    ):
        """Returns the context of many new tokens; each row is shifted, so that its chunks are aligned."""
        (batch, length), blocks = ops.shape(query)[:2], MemoryBlocks(self.chunk_length, self._memory)
        aligned, offsets = blocks.aligned_length(length), ops.mod(visibility.query_slots[:, :1], self.chunk_length)

        def moved(x: Tensor):
            return blocks.align(x, offsets, aligned, self._kept)

        # Queries are aligned with their keys; the outputs of past queries are dropped.
        slots = moved(with_batch_axis(visibility.key_slots, batch) + 1) - 1  # Padding has slot -1.
        visibility = dataclasses.replace(
            visibility,
            key_mask=slots >= 0,
            query_slots=slots,
            key_slots=slots,
            query_positions=slots,
            key_positions=slots,
        )
        query, key, value = (moved(x) for x in (pad_length(query, self._kept, 0), key, value))
        context = self.attend(query, key, value, visibility, position, training=training)
        return take_rows(context, offsets + self._memory, length)

    def _is_short(self, query: Tensor):
        """Whether there is statically at most one chunk of queries."""
        return query.shape[1] is not None and query.shape[1] <= self.chunk_length

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "chunk_length": self.chunk_length,
            "chunks_before": self.chunks_before,
            "chunks_after": self.chunks_after,
            "reads_whole_chunks": self.reads_whole_chunks,
        }
