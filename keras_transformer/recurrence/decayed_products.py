"""Products of queries with decaying sums over keys, chunk by chunk: what retention computes.

Within a chunk the products of queries and keys are made, between chunks a state is carried. A chunk takes a row of its own
in the batch. In the shapes, C is the size of a chunk, n their number.
"""

from __future__ import annotations

import numpy as np
from keras import ops

from keras_transformer.attention.partition.bands import block_count, pad_to_blocks
from keras_transformer.attention.partition.chunks import heads_first, tokens_first
from keras_transformer.backend.scan import associative_scan, chunk_size_for
from keras_transformer.utils.types import Tensor


def decayed_products(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    log_decay: Tensor,
    chunk_size: int,
    mask: Tensor = None,
    state: Tensor = None,
) -> tuple[Tensor, Tensor]:
    """`y_t = q_t R_t` with `R_t = γ R_{t - 1} + k_t v_tᵀ`, and `R_t = R_{t - 1}` at padding.

    Time grows with `T · (C + M) · H`, memory with `T · C` and, for the states before each chunk, with
    `T / C · M · H · log(T / C)`.

    Args:
        query: float `(B, T, N, M)`.
        key: float `(B, T, N, M)`.
        value: float `(B, T, N, H)`.
        log_decay: log γ, not above 0: a float array `(N,)` of each head, or a float tensor `(B, T, N)` of each token, by
            which the state fades before the token is added.
        chunk_size: int >= 1. C; changes the cost alone.
        mask: float `(B, T)`, 0 for padding, or None.
        state: float `(B, N, M, H)`: R before the first token; None for zeros, and then no state is returned.

    Returns:
        `(B, T, N, H)`, and the state after the last token, or None.
    """
    length, heads = ops.shape(query)[1], query.shape[2]
    size = chunk_size_for(query, chunk_size)
    if mask is not None:
        key = key * ops.cast(ops.expand_dims(mask, (2, 3)), key.dtype)
    if len(log_decay.shape) == 1:
        places = _places(query, mask, size, state is not None)
        log_decay = np.asarray(log_decay, "float32").reshape(1, heads, 1, 1)
    else:
        places, log_decay = _faded(log_decay, mask, size), np.full((1, heads, 1, 1), -1.0, "float32")
    query, key, value = (heads_first(pad_to_blocks(x, size), size, heads) for x in (query, key, value))
    transposed = ops.transpose(key, (0, 1, 3, 2))  # (B · n, N, M, C)
    context = ops.matmul(ops.matmul(query, transposed) * _weights(places, log_decay), value)
    if _is_one(length, size) and state is None:
        before, following = None, None
    else:
        ends = places[:, :, -1:]  # (1 | B · n, 1 | N, 1): the tokens of each chunk
        left = ops.exp(log_decay * ops.expand_dims(ends - places, 2))
        sums = ops.matmul(transposed * left, value)  # (B · n, N, M, H)
        before, following = _states(sums, log_decay[..., 0] * ends, block_count(length, size), state)
        context = context + ops.matmul(query * ops.exp(log_decay * ops.expand_dims(places, 3)), before)
    context = ops.reshape(
        tokens_first(context, size, heads), (-1, block_count(length, size) * size, heads, value.shape[-1])
    )
    return context[:, :length], following


def _is_one(length, size):
    """Whether there is one chunk, as far as is known before running."""
    return isinstance(length, int) and length <= size


def _places(x, mask, size, ends_matter):
    """How many tokens of its chunk have been read at each place, itself included: float32 `(1 | B · n, 1, C)`."""
    if mask is None and not (ends_matter and not _is_one(ops.shape(x)[1], size)):
        return ops.reshape(ops.arange(1, size + 1, dtype="float32"), (1, 1, -1))
    mask = ops.ones_like(x[:, :, 0, 0], dtype="float32") if mask is None else mask
    mask = ops.reshape(pad_to_blocks(ops.cast(mask, "float32"), size), (-1, 1, size))
    return ops.cumsum(mask, axis=2)


def _faded(log_decay, mask, size):
    """How far the state has faded in its chunk at each place, itself included: float32 `(B · n, N, C)`, minus a log."""
    fading = -ops.cast(log_decay, "float32")
    if mask is not None:
        fading = fading * ops.cast(ops.expand_dims(mask, 2), "float32")
    fading = ops.reshape(pad_to_blocks(fading, size), (-1, size, fading.shape[2]))
    return ops.cumsum(ops.transpose(fading, (0, 2, 1)), axis=2)


def _weights(places, log_decay):
    """`γ^(t - s)` where key s is not after query t, else 0: `(1 | B · n, N, C, C)`."""
    size = ops.shape(places)[2]
    order = ops.arange(size, dtype="int32")
    seen = ops.greater_equal(ops.reshape(order, (1, 1, -1, 1)), ops.reshape(order, (1, 1, 1, -1)))
    distances = ops.expand_dims(places, 3) - ops.expand_dims(places, 2)
    # Masked before the exponential: what lies ahead would overflow.
    return ops.exp(log_decay * ops.maximum(distances, 0.0)) * ops.cast(seen, "float32")


def _states(sums, log_decay, chunks, state):
    """The states before each chunk, `(B · n, N, M, H)`, and the one after the last, `(B, N, M, H)`, if any is given.

    Args:
        sums: `(B · n, N, M, H)`: what each chunk adds.
        log_decay: `(1 | B · n, N, 1)`: what each chunk leaves of what was before.
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
    if state is None:  # The last is not asked for.
        elements = tuple(x[:, :-1] for x in elements)
    states = associative_scan(_join, elements, (0.0, 0.0))[1]
    following = None if state is None else ops.reshape(states[:, -1], (-1, heads, width, value_width))
    before = states if state is None else states[:, :-1]
    return ops.reshape(before, (-1, heads, width, value_width)), following


def _join(earlier, later):
    return earlier[0] + later[0], ops.exp(later[0]) * earlier[1] + later[1]
