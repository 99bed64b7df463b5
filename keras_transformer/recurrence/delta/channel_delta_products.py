"""Delta rules with a decay per channel, in chunks: those of Kimi Delta Attention and RWKV-7.

The chunked form is that of `delta_products`. In the shapes, C is the chunk size, n the number of chunks.
"""

from __future__ import annotations

import numpy as np
from keras import ops

from keras_transformer.attention.partition.bands import block_count
from keras_transformer.backend.kernels.scan import chunk_size_for
from keras_transformer.recurrence.delta.channel_pairs import channel_pairs
from keras_transformer.recurrence.delta.delta_chunks import ChunkMatrices, carry_states, chunks_first, tokens_first
from keras_transformer.recurrence.delta.triangular_inverse import unit_lower_inverse
from keras_transformer.utils.types import Tensor


def channel_delta_products(
    query: Tensor,
    read: Tensor,
    write: Tensor,
    value: Tensor,
    log_decay: Tensor,
    chunk_size: int,
    key: Tensor | None = None,
    mask: Tensor | None = None,
    state: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """A delta rule: `y_t = q_t S_t` with `S_t = diag(α_t) S_{t - 1} + w_t (v_t - r_t S_{t - 1})ᵀ` or, with a key,
    `S_t = diag(α_t) S_{t - 1} - w_t (r_t S_{t - 1})ᵀ + k_t v_tᵀ`.

    At padding, `S_t = S_{t - 1}`. Time grows with `T · (C · (C + M + H) + M · H)` for each head, memory with
    `T · (C + M · log C + H)` and, for the states before each chunk, with `T / C · M · H`.

    Args:
        query: float32 `(B, T, N, M)`.
        read: float32 `(B, T, N, M)`: r.
        write: float32 `(B, T, N, M)`: w.
        value: float32 `(B, T, N, H)`.
        log_decay: float32 `(B, T, N, M)`: log α <= 0.
        chunk_size: int >= 1. C, which is rounded up to a power of two. It changes only the cost.
        key: float32 `(B, T, N, M)`, or None.
        mask: float `(B, T)`, 0 for padding, or None.
        state: float `(B, N, M, H)`: S before the first token. None for zeros.

    Returns:
        `(B, T, N, H)`, and the state after the last token.
    """
    length = ops.shape(query)[1]
    size = 1 << (chunk_size_for(query, chunk_size) - 1).bit_length()
    chunks = block_count(length, size)
    if mask is not None:
        mask = ops.cast(ops.expand_dims(mask, (2, 3)), write.dtype)
        write, log_decay, key = write * mask, log_decay * mask, None if key is None else key * mask
    query, read, write, value, log_decay = (
        chunks_first(x, size, chunks) for x in (query, read, write, value, log_decay)
    )
    key = None if key is None else chunks_first(key, size, chunks)
    decay = ops.exp(log_decay)
    faded = query * decay
    pairs = channel_pairs((read, faded), (write,) if key is None else (write, key), decay)
    among, weights = pairs.products[0]
    targets = value if key is None else -ops.matmul(pairs.products[1][0], value)
    solved = ops.matmul(unit_lower_inverse(among), ops.concatenate([targets, read * pairs.before], axis=3))
    matrices = ChunkMatrices(
        faded * pairs.before,
        weights + _diagonal(query, write),
        solved[..., : value.shape[3]],
        solved[..., value.shape[3] :],
        ops.transpose(write * pairs.after, (0, 1, 3, 2)),
        ops.transpose(pairs.whole, (0, 1, 3, 2)),
        None if key is None else ops.matmul(ops.transpose(key * pairs.after, (0, 1, 3, 2)), value),
    )
    y, following = carry_states(matrices, chunks, state)
    if key is not None:
        y = y + ops.matmul(pairs.products[1][1] + _diagonal(query, key), value)
    return tokens_first(y, chunks)[:, :length], following


def _diagonal(query, key):
    """Returns the products of each query with the key of the same token, `(n · B, N, C, C)`."""
    own = ops.sum(query * key, axis=3, keepdims=True)
    return own * ops.convert_to_tensor(np.eye(query.shape[2])[None, None], query.dtype)
