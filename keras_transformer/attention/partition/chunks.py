"""Unnormalized linear attention, with causality in chunks.

Products of queries and keys are computed within chunks; sums over keys are carried between chunks. Chunks are folded into
the batch. Shapes: C chunk size, n number of chunks, G query heads of a key head, M features.
"""

from __future__ import annotations

import numpy as np
from keras import ops

from keras_transformer.attention.partition.bands import block_count, pad_to_blocks
from keras_transformer.utils.types import Tensor


def unnormalized_attention(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """`y_t = q_t Σ_s k_s v_sᵀ` and `q_t · Σ_s k_s`: bidirectional, in time and memory O(T + S).

    Args:
        query: float `(B, T, N, M)`.
        key: float `(B, S, K, M)`; N is a multiple of K.
        value: float `(B, S, K, H)`.

    Returns:
        `(B, T, N, H)`, and `(B, T, N, 1)`.
    """
    length, heads, key_heads = ops.shape(query)[1], query.shape[2], key.shape[2]
    query, key, value = (heads_first(x, ops.shape(x)[1], key_heads) for x in (query, key, value))
    sums = ops.matmul(query, ops.matmul(ops.transpose(key, (0, 1, 3, 2)), value))
    totals = ops.matmul(query, ops.expand_dims(ops.sum(key, axis=2), 3))
    return tokens_first(sums, length, heads), tokens_first(totals, length, heads)


def causal_unnormalized_attention(
    query: Tensor, key: Tensor, value: Tensor, chunk_size: int, state: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """`y_t = q_t (S_0 + Σ_{s <= t} k_s v_sᵀ)`, and the sums after the last token.

    Time grows with `T · (C + M) · H`, memory with `T · C` and, for the sums before each chunk, `T / C · M · H`.

    Args:
        query: float `(B, T, N, M)`.
        key: float `(B, T, K, M)`; N is a multiple of K.
        value: float `(B, T, K, H)`.
        chunk_size: int >= 1. C; affects the cost only.
        state: float `(B, K, M, H)`: S_0, the sums over the tokens before; None for zeros.

    Returns:
        `(B, T, N, H)`, and the next state.
    """
    length, heads, key_heads = ops.shape(query)[1], query.shape[2], key.shape[2]
    size = chunk_length(query, chunk_size)
    query, key, value = (heads_first(pad_to_blocks(x, size), size, key_heads) for x in (query, key, value))
    transposed = ops.transpose(key, (0, 1, 3, 2))  # (B · n, K, M, C)
    before, state = running_sums(ops.matmul(transposed, value), block_count(length, size), state)
    weights = ops.matmul(query, transposed) * _causal(size, heads // key_heads)  # (B · n, K, C · G, C)
    context = ops.matmul(weights, value) + ops.matmul(query, before)
    context = ops.reshape(
        tokens_first(context, size, heads), (-1, block_count(length, size) * size, heads, value.shape[-1])
    )
    return context[:, :length], state


def running_sums(sums: Tensor, chunks: int | Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Returns the sums over all chunks before each chunk, and over all chunks.

    Args:
        sums: `(B · n, K, M, H)`: the sum of each chunk.
        chunks: int. n.
        state: `(B, K, M, H)`: the sums before the first chunk; None for zeros.

    Returns:
        `(B · n, K, M, H)` and `(B, K, M, H)`.
    """
    _, heads, width, value_width = sums.shape
    sums = ops.reshape(sums, (-1, chunks, heads * width, value_width))
    if state is None:
        state = ops.zeros_like(sums[:, :1])
    first = ops.reshape(state, (-1, 1, heads * width, value_width))
    sums = ops.cumsum(ops.concatenate([ops.cast(first, sums.dtype), sums], axis=1), axis=1)
    before = ops.reshape(sums[:, :-1], (-1, heads, width, value_width))
    return before, ops.reshape(sums[:, -1], (-1, heads, width, value_width))


def chunk_length(x: Tensor, chunk_size: int) -> int | Tensor:
    """The size of the chunks of `(B, T, ...)`: at most the length of the sequence."""
    if x.shape[1] is not None:
        return min(x.shape[1], chunk_size)
    return ops.minimum(ops.shape(x)[1], chunk_size)


def heads_first(x: Tensor, size: int | Tensor, key_heads: int) -> Tensor:
    """`(B, n · C, N, H)` to `(B · n, K, C · G, H)`: a row for each token and each query head of a key head."""
    heads, width = x.shape[2], x.shape[3]
    x = ops.reshape(x, (-1, size, key_heads, heads // key_heads * width))
    return ops.reshape(ops.transpose(x, (0, 2, 1, 3)), (-1, key_heads, size * (heads // key_heads), width))


def tokens_first(x: Tensor, size: int | Tensor, heads: int) -> Tensor:
    """The inverse of `heads_first`: returns `(B · n, C, N, H)`."""
    key_heads, width = x.shape[1], x.shape[3]
    x = ops.reshape(x, (-1, key_heads, size, heads // key_heads * width))
    return ops.reshape(ops.transpose(x, (0, 2, 1, 3)), (-1, size, heads, width))


def _causal(size: int | Tensor, group: int):
    """`(1, 1, C · G, C)`: 1 if the key is not after the query."""
    if isinstance(size, int):
        return ops.convert_to_tensor(np.repeat(np.tri(size), group, axis=0)[None, None], "float32")
    rows = ops.reshape(ops.arange(size * group, dtype="int32") // group, (1, 1, -1, 1))
    columns = ops.reshape(ops.arange(size, dtype="int32"), (1, 1, 1, -1))
    return ops.cast(ops.greater_equal(rows, columns), "float32")
