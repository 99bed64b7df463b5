"""Retrieval attention: attention to the top-k keys of each query."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Unpack

from keras import ops

from keras_transformer.attention.arguments import positive
from keras_transformer.attention.masks import Visibility, with_batch_axis
from keras_transformer.attention.mechanism import Mechanism
from keras_transformer.attention.partition.bands import pad_length
from keras_transformer.layers.dropout import Dropout
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, LayerOptions, Tensor

if TYPE_CHECKING:
    from keras_transformer.positions import AttentionPosition


# The score of masked keys, and the threshold between masked and other scores.
_MASKED_SCORE, _SEEN = -1e30, -1e29


@serializable
class RetrievalAttention(Mechanism):
    """Softmax attention of each query and head to the `top_k` keys with the largest scores.

    `y_i = Σ_{j in top_k(q_i · k_j)} softmax_j(q_i · k_j / √H) v_j`. The search is exact: it scans blocks of keys and
    keeps the best so far. Time grows with `T · S`, memory with `T · (top_k · H + block_size)`: for few queries and very many
    keys. With `top_k >= S` it equals softmax attention. The retrieved keys and values have gradients.

    For keys that do not fit in memory, see `NearestNeighbors` and `attend_to_neighbors`.

    Args:
        top_k: int >= 1. Number of keys that each query attends to.
        block_size: int >= 1. Keys of a block. Affects the cost only.
        dropout: float in [0, 1). Dropout rate of the attention weights.
        seed: int or None. Seed of the dropout.

    Call arguments: see `Mechanism`. Causal and bidirectional self- and cross-attention, positions that rotate queries and
    keys. The cache keeps all keys.

    Returns:
        The context `(B, T, N, H_value)`.

    Raises:
        ValueError: `top_k` or `block_size` below 1; a call with scores, an `attention_mask`, a window or a bias.

    Example:

    >>> import numpy as np
    >>> keys, values = np.array([3.0, 1.0, 2.0]).reshape(1, 3, 1, 1), np.array([5.0, 6.0, 7.0]).reshape(1, 3, 1, 1)
    >>> RetrievalAttention(top_k=1)(np.ones((1, 1, 1, 1)), keys, values).numpy().item()
    5.0

    Reference: Bertsch et al., Unlimiformer, arXiv 2305.01625, section 2.3. As in the paper, `attend_to_neighbors` uses one
    index of the encoder's output for all heads and layers, and searches for `q W_kᵀ`.
    """

    supports = frozenset({"causal", "bidirectional", "cross", "cache"})

    def __init__(
        self,
        top_k: int = 16,
        block_size: int = 1024,
        dropout: float = 0.0,
        seed: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.top_k = positive("top_k", top_k)
        self.block_size = positive("block_size", block_size)
        self.dropout = dropout
        self.seed = seed
        self._dropout_layer = Dropout(dropout, seed=seed, dtype=self.dtype_policy)

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
        query = query * ops.cast(1.0 / math.sqrt(query.shape[-1]), query.dtype)
        # The search loop is not differentiated.
        indices, is_key = self._search(ops.stop_gradient(query), ops.stop_gradient(key), visibility)
        heads, length = query.shape[2], ops.shape(query)[1]
        query = ops.reshape(ops.transpose(query, (0, 2, 1, 3)), (-1, 1, query.shape[3]))  # (B · N · T, 1, H)
        key, value = (self._gather(x, indices) for x in (key, value))  # (B · N · T, top_k, H) each
        scores = ops.cast(ops.matmul(query, ops.transpose(key, (0, 2, 1))), "float32")
        is_key = ops.reshape(is_key, (-1, 1, is_key.shape[3]))
        weights = ops.softmax(ops.where(is_key, scores, ops.full_like(scores, _MASKED_SCORE)), axis=-1)
        weights = ops.cast(ops.where(is_key, weights, ops.zeros_like(weights)), value.dtype)
        context = ops.matmul(self._dropout_layer(weights, training=training), value)
        context = ops.transpose(ops.reshape(context, (-1, heads, length, value.shape[-1])), (0, 2, 1, 3))
        if visibility.query_mask is None:
            return context
        seeing = ops.expand_dims(ops.expand_dims(visibility.query_mask, 2), 3)
        return context * ops.cast(seeing, context.dtype)

    def _search(self, query: Tensor, key: Tensor, visibility: Visibility):
        """Returns the indices of the best keys of each query, int32 `(B, N, T, top_k)`, and whether each is valid."""
        blocks = _KeyBlocks(query, key, visibility, self.block_size)
        shape = (ops.shape(query)[0], query.shape[2], ops.shape(query)[1], self.top_k)
        best, indices = ops.full(shape, _MASKED_SCORE, dtype="float32"), ops.zeros(shape, dtype="int32")

        def search_block(index: Tensor, best, indices: Tensor):
            found, block_indices = ops.top_k(blocks.scores(index), min(self.top_k, blocks.size))
            block_indices = ops.cast(block_indices, "int32") + index * blocks.size
            best, order = ops.top_k(ops.concatenate([best, found], axis=-1), self.top_k)
            indices = ops.take_along_axis(ops.concatenate([indices, block_indices], axis=-1), order, axis=-1)
            return index + 1, best, indices

        start = (ops.convert_to_tensor(0, "int32"), best, indices)
        _, best, indices = ops.while_loop(lambda index, *_: index < blocks.count, search_block, start)
        return indices, best > _SEEN

    def _gather(self, x: Tensor, indices: Tensor):
        """Rows of `(B, S, K, H)` at `(B, N, T, top_k)`: `(B · N · T, top_k, H)`."""
        batch, length, heads = ops.shape(x)[0], ops.shape(x)[1], x.shape[2]
        groups = indices.shape[1] // heads
        rows = ops.reshape(ops.arange(batch, dtype="int32"), (-1, 1, 1, 1)) * length
        of_head = ops.reshape(ops.arange(indices.shape[1], dtype="int32") // groups, (1, -1, 1, 1))
        flat = (indices + rows) * heads + of_head
        taken = ops.take(ops.reshape(x, (-1, x.shape[3])), ops.reshape(flat, (-1, self.top_k)), axis=0)
        return ops.reshape(taken, (-1, self.top_k, x.shape[3]))

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "top_k": self.top_k,
            "block_size": self.block_size,
            "dropout": self.dropout,
            "seed": self.seed,
        }


class _KeyBlocks:
    """Keys split into blocks, and the scores of all queries with one block."""

    def __init__(self, query: Tensor, key: Tensor, visibility: Visibility, block_size: int) -> None:
        length = key.shape[1]
        self.size = block_size if length is None else min(block_size, length)
        self.count = (ops.shape(key)[1] + self.size - 1) // self.size
        end = self.count * self.size - ops.shape(key)[1]
        key_mask = visibility.key_mask
        if key_mask is None:
            key_mask = ops.ones((1, ops.shape(key)[1]), dtype="bool")
        self._visibility = visibility
        self._key_mask = pad_length(ops.cast(key_mask, "bool"), 0, end)
        self._key_slots = pad_length(with_batch_axis(visibility.key_slots), 0, end) if visibility.causal else None
        self._key_heads, self._query_heads = key.shape[2], query.shape[2]
        # Heads that share a key are adjacent in the length.
        query = ops.transpose(query, (0, 2, 1, 3))
        self._length = ops.shape(query)[2]
        groups = self._query_heads // self._key_heads
        self._query = ops.reshape(query, (-1, self._key_heads, groups * self._length, query.shape[3]))
        self._key = ops.transpose(pad_length(key, 0, end), (0, 2, 3, 1))

    def scores(self, index: Tensor) -> Tensor:
        """`(B, N, T, block_size)`, float32; masked keys at -1e30."""
        scores = ops.matmul(self._query, self._block(self._key, index))
        scores = ops.cast(ops.reshape(scores, (-1, self._query_heads, self._length, self.size)), "float32")
        visibility = Visibility(
            key_mask=self._block(self._key_mask, index),
            causal=self._visibility.causal,
            query_slots=self._visibility.query_slots,
            key_slots=None if self._key_slots is None else self._block(self._key_slots, index),
        )
        return ops.where(visibility.dense(), scores, ops.full_like(scores, _MASKED_SCORE))

    def _block(self, x: Tensor, index: Tensor):
        """Block `index` along the last axis."""
        starts = [0] * (len(x.shape) - 1) + [index * self.size]
        return ops.slice(x, starts, (*ops.shape(x)[:-1], self.size))
