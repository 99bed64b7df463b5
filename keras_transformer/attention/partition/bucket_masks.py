"""Masks and biases of attention among tokens of equal hash, for LSH attention.

In the shapes, R is the number of rounds, c the tokens of a chunk, n the number of chunks.
"""

from __future__ import annotations

import numpy as np
from keras import ops

from keras_transformer.attention.masks import MASKED_SCORE
from keras_transformer.attention.partition.sorted_chunks import SortedChunks
from keras_transformer.utils.types import Tensor

# Added to the score of a token with itself, so that it attends to itself only if there is no other key.
SELF_BIAS = -1e5


def within_buckets(tokens: SortedChunks, causal: bool, before: int, after: int) -> tuple[Tensor, Tensor]:
    """Returns mask `(B · N · R · n, 1, c, C)` and bias `(1, 1, c, C)` of each chunk over itself and its neighbors, C tokens.

    A token attends to those of its bucket; if causal, to itself and the `before · c` tokens before it in its bucket.
    """
    query, key = _of_queries_and_keys(tokens, tokens.buckets, before, after, wraps=False)
    mask = ops.equal(ops.where(query < tokens.num_buckets, query, -1), key)
    size = tokens.chunk_length
    distances = (np.arange(size) + before * size)[:, None] - np.arange((before + 1 + after) * size)[None]
    bias = np.where(distances == 0, SELF_BIAS, 0.0)
    if causal:  # Within a bucket, the order is that of token indices.
        bias = np.where((distances >= 0) & (distances <= before * size), bias, MASKED_SCORE)
    return mask, ops.convert_to_tensor(bias[None, None], dtype="float32")


def across_buckets(tokens: SortedChunks, causal: bool, before: int, after: int) -> tuple[Tensor, Tensor]:
    """Returns mask and bias `(B · N · R · n, 1, c, C)`: a token attends to all C tokens of its chunk and its neighbors.

    If causal, it attends to those up to itself. The first chunk follows the last one of the round before.
    """
    query, key = _of_queries_and_keys(tokens, tokens.indices, before, after, wraps=True)
    _, buckets = _of_queries_and_keys(tokens, tokens.buckets, before, after, wraps=True)
    mask = buckets < tokens.num_buckets
    if causal:
        mask = ops.logical_and(mask, key <= query)
    return mask, ops.where(ops.equal(query, key), SELF_BIAS, 0.0)


def latest_of_buckets(new: Tensor, cached: Tensor, mask: Tensor, count: int) -> Tensor:
    """Returns the mask `(B, N, R · T, L)` of new tokens over a cache: the last keys of the query's bucket, round by round.

    Args:
        new: int `(B, T, N, R)`: the buckets of new tokens.
        cached: int `(B, L, N, R)`: the buckets of all tokens in the cache, the new ones included.
        mask: boolean `(B | 1, 1, T, L)`: the causal mask and padding.
        count: int. The number of keys before the query's own.
    """
    masks = []
    for each in range(new.shape[3]):
        query = ops.transpose(new[:, :, :, each : each + 1], (0, 2, 1, 3))
        key = ops.transpose(cached[:, :, :, each : each + 1], (0, 2, 3, 1))
        same = ops.logical_and(ops.equal(query, key), mask)  # (B, N, T, L)
        counts = ops.cumsum(ops.cast(same, "int32"), axis=-1)
        masks.append(ops.logical_and(same, counts[:, :, :, -1:] - counts <= count))
    return ops.concatenate(masks, axis=2)


def _of_queries_and_keys(tokens, x, before, after, wraps):
    """Returns integers of tokens as those of queries, `(·, 1, c, 1)`, and of keys, `(·, 1, 1, C)`."""
    chunks, size = tokens.chunks(x), tokens.chunk_length
    keys = tokens.with_neighbors(chunks, before, after, wraps, filling=tokens.num_buckets)
    return ops.reshape(chunks, (-1, 1, size, 1)), ops.reshape(keys, (-1, 1, 1, (before + 1 + after) * size))
