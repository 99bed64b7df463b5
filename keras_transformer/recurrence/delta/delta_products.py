"""The gated delta rule in chunks: linear attention that replaces what the state holds for a key.

Within a chunk, the updates of all tokens follow from the inverse of one triangular matrix; a loop over chunks carries the
state. In the shapes, C is the chunk size, n the number of chunks, K the number of key heads.
"""

from __future__ import annotations

import numpy as np
from keras import ops

from keras_transformer.attention.partition.bands import block_count
from keras_transformer.backend.kernels.scan import chunk_size_for
from keras_transformer.recurrence.decayed_products import per_value_head
from keras_transformer.recurrence.delta.delta_chunks import ChunkMatrices, carry_states, chunks_first, tokens_first
from keras_transformer.recurrence.delta.triangular_inverse import unit_lower_inverse
from keras_transformer.utils.types import Tensor


def delta_products(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    rate: Tensor,
    log_decay: Tensor | None,
    chunk_size: int,
    mask: Tensor | None = None,
    state: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """The gated delta rule: `y_t = q_t S_t` with `S_t = α_t (I - β_t k_t k_tᵀ) S_{t - 1} + β_t k_t v_tᵀ`.

    At padding, `S_t = S_{t - 1}`. Time grows with `T · (C · (C + M + H) + M · H)` for each head, memory with
    `T · (C + M + H)` and, for the states before each chunk, with `T / C · M · H`.

    Args:
        query: float32 `(B, T, K, M)`.
        key: float32 `(B, T, K, M)`. The rule is stable if keys are not longer than 1.
        value: float32 `(B, T, N, H)`; N is a multiple of K, and consecutive value heads share a key head.
        rate: float32 `(B, T, N)`: β.
        log_decay: float32 `(B, T, N)`: log α <= 0; None for no decay.
        chunk_size: int >= 1. C. It changes only the cost.
        mask: float `(B, T)`, 0 for padding, or None.
        state: float `(B, N, M, H)`: S before the first token. None for zeros.

    Returns:
        `(B, T, N, H)`, and the state after the last token.
    """
    length = ops.shape(query)[1]
    size = chunk_size_for(query, chunk_size)
    chunks = block_count(length, size)
    if mask is not None:
        mask = ops.cast(ops.expand_dims(mask, 2), rate.dtype)
        rate, log_decay = rate * mask, None if log_decay is None else log_decay * mask
    query, key, value = (chunks_first(x, size, chunks) for x in (query, key, value))
    rate = chunks_first(ops.expand_dims(rate, 3), size, chunks)  # (n · B, N, C, 1)
    fading = None if log_decay is None else _Fading(chunks_first(ops.expand_dims(log_decay, 3), size, chunks))
    y, following = carry_states(_chunk_matrices(query, key, value, rate, fading), chunks, state)
    return tokens_first(y, chunks)[:, :length], following


class _Fading:
    """How much of the past is left, from log α of the tokens of chunks, `(n · B, N, C, 1)`.

    Attributes:
        between: `(n · B, N, C, C)`: from token s to token t, `Π_{s < i <= t} α_i`; 1 if s is not before t.
        since_start: `(n · B, N, C, 1)`: from before the chunk to each token.
        until_end: `(n · B, N, C, 1)`: from each token to the last.
    """

    def __init__(self, log_decay: Tensor) -> None:
        heads, size = log_decay.shape[1:3]
        seen, after = (ops.convert_to_tensor(x, log_decay.dtype) for x in (np.tri(size), np.tri(size, k=-1)))
        # Sums of the tokens between, not differences of running sums, which would cancel after fast decay.
        logs = ops.transpose(log_decay, (0, 1, 3, 2)) * ops.reshape(seen, (1, 1, size, size))
        sums = ops.matmul(ops.reshape(logs, (-1, size)), after)
        self.between = ops.exp(ops.reshape(sums, (-1, heads, size, size)))
        self.since_start = self.between[:, :, :, :1] * ops.exp(log_decay[:, :, :1])
        self.until_end = ops.transpose(self.between[:, :, size - 1 :], (0, 1, 3, 2))


def _chunk_matrices(query, key, value, rate, fading):
    """Returns the `ChunkMatrices`, which add nothing."""
    heads, size, value_width = value.shape[1:]
    transposed = ops.transpose(key, (0, 1, 3, 2))
    among_keys, weights = (per_value_head(ops.matmul(x, transposed), heads) for x in (key, query))
    query, key = per_value_head(query, heads), per_value_head(key, heads)
    before, seen = (np.tri(size, k=offset, dtype="float32")[None, None] for offset in (-1, 0))
    among_keys, weights = among_keys * before * rate, weights * seen
    targets, reads = value * rate, key * rate
    left = ops.ones_like(rate[:, :, :1])
    if fading is not None:
        among_keys, weights = among_keys * fading.between, weights * fading.between
        reads, query, key = reads * fading.since_start, query * fading.since_start, key * fading.until_end
        left = fading.since_start[:, :, size - 1 :]
    solved = ops.matmul(unit_lower_inverse(among_keys), ops.concatenate([targets, reads], axis=3))
    targets, reads = solved[..., :value_width], solved[..., value_width:]
    return ChunkMatrices(query, weights, targets, reads, ops.transpose(key, (0, 1, 3, 2)), left)
