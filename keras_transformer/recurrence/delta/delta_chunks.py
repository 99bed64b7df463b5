"""What delta rules in chunks share: chunks as rows of the batch, and the states that are carried between them.

In the shapes, C is the chunk size, n the number of chunks.
"""

from __future__ import annotations

from typing import NamedTuple

from keras import ops

from keras_transformer.attention.partition.bands import pad_to_blocks
from keras_transformer.recurrence.delta.state_scan import state_scan
from keras_transformer.utils.types import Tensor


class ChunkMatrices(NamedTuple):
    """What each chunk does with the state S before it. With `U = targets - reads S`, its outputs are `query S + weights U`,
    and the next state is `left S + writes U + added`.

    Attributes:
        query: float32 `(n · B, N, C, M)`.
        weights: float32 `(n · B, N, C, C)`.
        targets: float32 `(n · B, N, C, H)`.
        reads: float32 `(n · B, N, C, M)`.
        writes: float32 `(n · B, N, M, C)`.
        left: float32 `(n · B, N, 1 | M, 1)`.
        added: float32 `(n · B, N, M, H)`, or None.
    """

    query: Tensor
    weights: Tensor
    targets: Tensor
    reads: Tensor
    writes: Tensor
    left: Tensor
    added: Tensor | None = None


def carry_states(
    matrices: ChunkMatrices, chunks: int | Tensor, state: Tensor | None = None
) -> tuple[Tensor, Tensor | None]:
    """Carries the state S from chunk to chunk.

    Args:
        matrices: `ChunkMatrices`.
        chunks: n.
        state: float `(B, N, M, H)`: S before the first chunk. None for zeros.

    Returns:
        The outputs of each chunk, `(n · B, N, C, H)`; and S after the last, `(B, N, M, H)`.
    """
    *products, added = matrices
    heads, size, value_width = matrices.targets.shape[1:]
    width = matrices.query.shape[3]
    query, weights, targets, reads, writes, left = (
        ops.reshape(x, (chunks, -1, *x.shape[2:])) for x in products
    )  # (n, B · N, ...)
    if state is None:
        state = ops.zeros((ops.shape(query)[1], width, value_width), targets.dtype)
    state = ops.cast(ops.reshape(state, (-1, width, value_width)), targets.dtype)
    changes = ops.matmul(writes, targets)
    if added is not None:
        changes = changes + ops.reshape(added, (chunks, -1, width, value_width))
    states = state_scan(left, writes, reads, changes, state)
    before = ops.concatenate([ops.expand_dims(state, 0), states[:-1]], axis=0)
    y = ops.matmul(query, before) + ops.matmul(weights, targets - ops.matmul(reads, before))
    return ops.reshape(y, (-1, heads, size, value_width)), ops.reshape(states[-1], (-1, heads, width, value_width))


def chunks_first(x: Tensor, size: int | Tensor, chunks: int | Tensor) -> Tensor:
    """Cuts `(B, T, N, H)` into `(n · B, N, C, H)`, padded with zeros."""
    heads, width = x.shape[2:]
    x = ops.reshape(pad_to_blocks(x, size), (-1, chunks, size * heads * width))
    x = ops.reshape(ops.transpose(x, (1, 0, 2)), (-1, size, heads, width))
    return ops.transpose(x, (0, 2, 1, 3))


def tokens_first(x: Tensor, chunks: int | Tensor) -> Tensor:
    """The inverse of `chunks_first`: returns `(B, n · C, N, H)`."""
    heads, size, width = x.shape[1:]
    x = ops.reshape(ops.transpose(x, (0, 2, 1, 3)), (chunks, -1, size * heads * width))
    return ops.reshape(ops.transpose(x, (1, 0, 2)), (-1, chunks * size, heads, width))
