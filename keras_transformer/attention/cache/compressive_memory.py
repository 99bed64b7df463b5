"""Compressive memory of fixed size: sums over the keys of whole segments, which later segments read.

Each segment is a row of the batch. In the shapes, C is the segment length, n the number of segments, G the number of query
heads per key head, M the number of features of a head. The last column of memories and values is the normalizer.
"""

from __future__ import annotations

from keras import ops

from keras_transformer.attention.partition.chunks import heads_first, tokens_first
from keras_transformer.backend.kernels.scan import associative_scan
from keras_transformer.utils.types import Tensor


def read_memory(query: Tensor, memory: Tensor, length: int, heads: int) -> tuple[Tensor, Tensor]:
    """Returns `σ(q) M / (σ(q) · z)` for each query.

    Args:
        query: `(B · n, K, C · G, M)`, positive features.
        memory: `(B · n, K, M, H + 1)`: the memory before each segment.
        length: C.
        heads: int. N.

    Returns:
        `(B · n, C, N, H)`, zeros if the memory is empty; and whether it is not empty, float `(B · n, C, N, 1)`, 0 or 1.
    """
    read = tokens_first(ops.matmul(query, memory), length, heads)
    total = read[..., -1:]
    return read[..., :-1] * _inverse(total), ops.cast(total > 0, read.dtype)


def memories(
    key: Tensor,
    value: Tensor,
    segments: int | Tensor,
    is_delta: bool,
    memory: Tensor | None = None,
    pending: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Returns the memories before each segment and after the last, and the update of each segment.

    Args:
        key: `(B · n, K, C, M)`, positive features, zeros for padding.
        value: `(B · n, K, C, H + 1)`, the last column ones.
        segments: n.
        is_delta: bool. Whether to use the delta rule: a segment adds its values minus those retrieved from the memory.
        memory: `(B, K, M, H + 1)`, before the first segment; None for an empty memory.
        pending: `(B, K, M, H + 1)`: the update by tokens of the first segment that are not in `key`; with `memory`.

    Returns:
        `(B, n + 1, K · M, H + 1)`, and `(B, n, K · M, H + 1)` where a `memory` is given, else None.
    """
    _, heads, _, width = key.shape
    transposed = ops.transpose(key, (0, 1, 3, 2))  # (B · n, K, M, C)
    rows = (-1, segments, heads * width, value.shape[-1])
    sums = ops.reshape(ops.matmul(transposed, value), rows)
    first = ops.zeros_like(sums[:, :1])
    if memory is not None:
        shape = (-1, 1, *rows[2:])
        first, pending = ops.reshape(memory, shape), ops.reshape(pending, shape)
        sums = ops.concatenate([sums[:, :1] + pending, sums[:, 1:]], axis=1)
    totals_before = ops.cumsum(ops.concatenate([first, sums], axis=1), axis=1)
    if not is_delta:
        return totals_before, sums
    totals = totals_before[..., -1:]  # The normalizer has no delta rule.
    before = ops.reshape(totals[:, :-1], (-1, heads, width, 1))
    retrieved = ops.matmul(transposed, key * _inverse(ops.matmul(key, before)))  # (B · n, K, M, M)
    values = _corrected(retrieved, sums[..., :-1], first[..., :-1], rows)
    totals_before = ops.concatenate([values, totals], axis=3)
    if memory is None:
        return totals_before, None
    before = ops.reshape(values[:, :-1], (-1, heads, width, rows[3] - 1))
    known = ops.reshape(ops.matmul(retrieved, before), (*rows[:3], rows[3] - 1))
    return totals_before, sums - ops.concatenate([known, ops.zeros_like(sums[..., -1:])], axis=3)


def _corrected(retrieved, sums, first, rows):
    """`M_s = M_{s - 1} + sums_s - told_s M_{s - 1}` for s = 1 ... n after `first`, `(B, n + 1, K · M, H)`."""
    width = retrieved.shape[-1]
    kept = ops.reshape(ops.eye(width, dtype=retrieved.dtype) - retrieved, (*rows[:3], width))
    kept = ops.concatenate([ops.zeros_like(kept[:, :1]), kept], axis=1)

    def join(earlier, later):
        kept = ops.reshape(later[0], (-1, width, width))
        both = ops.matmul(kept, ops.reshape(ops.concatenate(earlier, axis=3), (-1, width, width + sums.shape[3])))
        both = ops.reshape(both, (-1, *ops.shape(later[0])[1:3], width + sums.shape[3]))
        return both[..., :width], both[..., width:] + later[1]

    return associative_scan(join, (kept, ops.concatenate([first, sums], axis=1)), (0.0, 0.0))[1]


def segment_heads(x: Tensor, length: int, key_heads: int) -> Tensor:
    """`(B, n · C, N, M)` to `(B · n, K, C · G, M)`, float32."""
    return heads_first(ops.cast(x, "float32"), length, key_heads)


def split_memories(memories: Tensor, key: Tensor) -> Tensor:
    """Splits memories `(B, n + 1, K · M, H + 1)`: those before each segment, `(B · n, K, M, H + 1)`, for its `key`."""
    return ops.reshape(memories[:, :-1], (-1, *key.shape[1:2], key.shape[3], memories.shape[3]))


def _inverse(x):
    """Returns `1 / x`, or 0 where x is 0, for x >= 0."""
    is_some = x > 0
    return ops.cast(is_some, x.dtype) / ops.where(is_some, x, 1.0)
