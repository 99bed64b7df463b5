"""Linear attention with exponential decay, in chunks: the computation of retention.

Within a chunk, products of queries and keys are computed; between chunks, a state is carried. Each chunk is a row of the
batch. In the shapes, C is the chunk size, n the number of chunks.
"""

from __future__ import annotations

import numpy as np
from keras import ops

from keras_transformer.attention.partition.bands import block_count, pad_to_blocks
from keras_transformer.attention.partition.chunks import heads_first, tokens_first
from keras_transformer.backend.kernels.scan import associative_scan, chunk_size_for
from keras_transformer.utils.types import Tensor


def decayed_products(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    log_decay: Tensor,
    chunk_size: int,
    mask: Tensor | None = None,
    state: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Linear attention with decay: `y_t = q_t R_t` with `R_t = γ R_{t - 1} + k_t v_tᵀ`, and `R_t = R_{t - 1}` at padding.

    Time grows with `T · (C + M) · H`, memory with `T · C` and, for the states before each chunk, with
    `T / C · M · H · log(T / C)`.

    Args:
        query: float `(B, T, K, M)`.
        key: float `(B, T, K, M)`.
        value: float `(B, T, N, H)`; N is a multiple of K, and consecutive value heads share a key head.
        log_decay: log γ <= 0: a float array `(N,)`, one for each head, or a float tensor `(B, T, N)`, one for each token,
            which is applied to the state before the token is added.
        chunk_size: int >= 1. C. It changes only the cost.
        mask: float `(B, T)`, 0 for padding, or None.
        state: float `(B, N, M, H)`: R before the first token. None for zeros; then no state is returned.

    Returns:
        `(B, T, N, H)`, and the state after the last token, or None.
    """
    length, heads = ops.shape(query)[1], value.shape[2]
    size = chunk_size_for(query, chunk_size)
    if mask is not None:
        key = key * ops.cast(ops.expand_dims(mask, (2, 3)), key.dtype)
    if len(log_decay.shape) == 1:
        counts = _token_counts(query, mask, size, state is not None)
        log_decay = np.asarray(log_decay, "float32").reshape(1, heads, 1, 1)
    else:
        counts, log_decay = _cumulative_decay(log_decay, mask, size), np.full((1, heads, 1, 1), -1.0, "float32")
    query, key, value = (heads_first(pad_to_blocks(x, size), size, x.shape[2]) for x in (query, key, value))
    transposed = ops.transpose(key, (0, 1, 3, 2))  # (B · n, K, M, C)
    products = per_value_head(ops.matmul(query, transposed), heads)
    query, transposed = per_value_head(query, heads), per_value_head(transposed, heads)
    context = ops.matmul(products * _weights(counts, log_decay), value)
    if _is_one(length, size) and state is None:
        before, following = None, None
    else:
        ends = counts[:, :, -1:]  # (1 | B · n, 1 | N, 1): the tokens of each chunk
        left = ops.exp(log_decay * ops.expand_dims(ends - counts, 2))
        sums = ops.matmul(transposed * left, value)  # (B · n, N, M, H)
        before, following = _states(sums, log_decay[..., 0] * ends, block_count(length, size), state)
        context = context + ops.matmul(query * ops.exp(log_decay * ops.expand_dims(counts, 3)), before)
    context = ops.reshape(
        tokens_first(context, size, heads), (-1, block_count(length, size) * size, heads, value.shape[-1])
    )
    return context[:, :length], following


def per_value_head(x: Tensor, heads: int) -> Tensor:
    """Repeats each key head of `(rows, K, ...)` for the value heads that share it, `(rows, heads, ...)`."""
    return x if x.shape[1] == heads else ops.repeat(x, heads // x.shape[1], axis=1)


def _is_one(length, size):
    """Returns whether the length is static and there is one chunk."""
    return isinstance(length, int) and length <= size


def _token_counts(x, mask, size, ends_matter):
    """Returns the number of tokens in the chunk up to each token, including it: float32 `(1 | B · n, 1, C)`."""
    if mask is None and not (ends_matter and not _is_one(ops.shape(x)[1], size)):
        return ops.reshape(ops.arange(1, size + 1, dtype="float32"), (1, 1, -1))
    mask = ops.ones_like(x[:, :, 0, 0], dtype="float32") if mask is None else mask
    mask = ops.reshape(pad_to_blocks(ops.cast(mask, "float32"), size), (-1, 1, size))
    return ops.cumsum(mask, axis=2)


def _cumulative_decay(log_decay, mask, size):
    """Returns the cumulative decay in the chunk up to each token, including it: -log, float32 `(B · n, N, C)`."""
    decay = -ops.cast(log_decay, "float32")
    if mask is not None:
        decay = decay * ops.cast(ops.expand_dims(mask, 2), "float32")
    decay = ops.reshape(pad_to_blocks(decay, size), (-1, size, decay.shape[2]))
    return ops.cumsum(ops.transpose(decay, (0, 2, 1)), axis=2)


def _weights(counts, log_decay):
    """Returns `γ^(t - s)` if key s is not after query t, else 0: `(1 | B · n, N, C, C)`."""
    size = ops.shape(counts)[2]
    order = ops.arange(size, dtype="int32")
    seen = ops.greater_equal(ops.reshape(order, (1, 1, -1, 1)), ops.reshape(order, (1, 1, 1, -1)))
    distances = ops.expand_dims(counts, 3) - ops.expand_dims(counts, 2)
    # Clipped before the exponential, which would overflow for later keys.
    return ops.exp(log_decay * ops.maximum(distances, 0.0)) * ops.cast(seen, "float32")


def _states(sums, log_decay, chunks, state):
    """Returns the states before each chunk, `(B · n, N, M, H)`, and, if `state` is given, after the last, `(B, N, M, H)`.

    Args:
        sums: `(B · n, N, M, H)`: the sum that each chunk adds.
        log_decay: `(1 | B · n, N, 1)`: the decay over each chunk.
        chunks: n.
        state: `(B, N, M, H)`, or None.
    """
    _, heads, width, value_width = sums.shape
    sums = ops.reshape(sums, (-1, chunks, heads, width * value_width))
    is_uniform = isinstance(log_decay.shape[0], int) and log_decay.shape[0] == 1
    if is_uniform:  # The same for all chunks.
        log_decay = ops.broadcast_to(ops.expand_dims(log_decay, 1), (1, chunks, heads, 1))
    else:
        log_decay = ops.reshape(log_decay, (-1, chunks, heads, 1))
    first = ops.zeros_like(sums[:, :1])
    if state is not None:
        first = ops.cast(ops.reshape(state, (-1, 1, heads, width * value_width)), sums.dtype)
    elements = (
        ops.concatenate([ops.zeros_like(log_decay[:, :1]), log_decay], axis=1),
        ops.concatenate([first, sums], axis=1),
    )
    if state is None:  # The last state is not needed.
        elements = tuple(x[:, :-1] for x in elements)
    states = associative_scan(_join, elements, (0.0, 0.0))[1]
    following = None if state is None else ops.reshape(states[:, -1], (-1, heads, width, value_width))
    before = states if state is None else states[:, :-1]
    return ops.reshape(before, (-1, heads, width, value_width)), following


def _join(earlier, later):
    return earlier[0] + later[0], ops.exp(later[0]) * earlier[1] + later[1]
