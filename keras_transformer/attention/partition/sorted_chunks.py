"""Tokens sorted by bucket and split into chunks, for LSH attention.

In the shapes, R is the number of rounds, c the tokens of a chunk, n the number of chunks, `ceil(T / c)`.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
from keras import ops

from keras_transformer.utils.types import Tensor


@dataclasses.dataclass(frozen=True)
class SortedChunks:
    """The order of tokens in each round: by bucket, then by index, masked tokens last.

    Attributes:
        indices: int `(B · N, R, n · c)`: the index of the token; T or more for padding of the last chunk.
        buckets: int `(B · N, R, n · c)`: its bucket; `num_buckets` if it is masked.
        chunk_length: int. c.
        num_buckets: int.
        heads: int. N.
        length: T.
    """

    indices: Tensor
    buckets: Tensor
    chunk_length: int
    num_buckets: int
    heads: int
    length: int | Tensor

    @classmethod
    def of_buckets(cls, buckets: Tensor, seen: Tensor | None, chunk_length: int, num_buckets: int) -> SortedChunks:
        """Sorts tokens.

        Args:
            buckets: int `(B, T, N, R)`.
            seen: boolean `(B, T)`, or None: the tokens that are not masked.
            chunk_length: int.
            num_buckets: int.
        """
        length, heads, rounds = ops.shape(buckets)[1], buckets.shape[2], buckets.shape[3]
        total = (length + chunk_length - 1) // chunk_length * chunk_length
        if seen is not None:
            seen = ops.expand_dims(ops.expand_dims(ops.cast(seen, "bool"), 2), 3)
            buckets = ops.where(seen, buckets, num_buckets)
        buckets = ops.reshape(ops.transpose(buckets, (0, 2, 3, 1)), (-1, rounds, length))
        # Sort one integer of bucket and index, from which both are recovered; equal buckets stay in order.
        codes = buckets * total + ops.arange(length, dtype="int32")
        filling = num_buckets * total + ops.arange(length, total, dtype="int32")
        filling = ops.broadcast_to(filling, (*ops.shape(codes)[:2], ops.shape(filling)[0]))
        codes = ops.sort(ops.concatenate([codes, filling], axis=2), axis=-1)
        return cls(codes % total, codes // total, chunk_length, num_buckets, heads, length)

    def gather(self, x: Tensor) -> Tensor:
        """`(B, T, N, H)` to chunks `(B · N · R, n, c, H)`."""
        width = x.shape[3]
        # Rows of the flat tensor, (b · T + t) · N + head: without transposition or padding.
        row = ops.reshape(ops.arange(ops.shape(self.indices)[0], dtype="int32"), (-1, 1, 1))
        batch, head = row // self.heads, row % self.heads
        index = (batch * self.length + ops.minimum(self.indices, self.length - 1)) * self.heads + head
        chunks = ops.take(ops.reshape(x, (-1, width)), index, axis=0)
        return ops.reshape(chunks, (-1, self._count(), self.chunk_length, width))

    def chunks(self, x: Tensor) -> Tensor:
        """Integers `(B · N, R, n · c)` to `(B · N · R, n, c, 1)`."""
        return ops.reshape(x, (-1, self._count(), self.chunk_length, 1))

    def with_neighbors(self, chunks: Tensor, before: int, after: int, wraps: bool, filling: float = 0) -> Tensor:
        """Each chunk between those before and after it, `(B · N · R, n, (before + 1 + after) · c, H)`.

        Args:
            chunks: `(B · N · R, n, c, H)`.
            before: int. Number of chunks before each.
            after: int. Number of chunks after each.
            wraps: whether the first chunk of a round follows the last one of the round before, and the very first one the
                very last. Only chunks with unmasked tokens count, so that padding has no influence.
            filling: number. What is before the first and after the last chunk otherwise.
        """
        at = self._around if wraps else functools.partial(_shifted, filling=filling)
        parts = [chunks if offset == 0 else at(chunks, offset) for offset in range(-before, after + 1)]
        return parts[0] if len(parts) == 1 else ops.concatenate(parts, axis=2)

    def _around(self, chunks: Tensor, offset: int):
        """The chunk at `offset` from each in the ring of the chunks of all rounds."""
        rows, rounds = ops.shape(self.indices)[0], self.indices.shape[1]
        numbers = ops.reshape(ops.arange(rows, dtype="int32"), (-1, 1, 1)) * rounds
        # Chunks with an unmasked token, equal in all rounds: (B · N, 1, 1).
        tokens = ops.sum(ops.cast(self.buckets[:, :1] < self.num_buckets, "int32"), axis=2, keepdims=True)
        counts = ops.maximum(tokens - 1, 0) // self.chunk_length + 1
        each = np.arange(rounds, dtype="int32")[None, :, None]
        if offset == -1:  # The usual case: only the first chunks are gathered.
            index = (numbers + (each + rounds - 1) % rounds) * self._count() + counts - 1
            return ops.concatenate([self._take(chunks, index), chunks[:, :-1]], axis=1)
        own = ops.minimum(ops.reshape(ops.arange(self._count(), dtype="int32"), (1, 1, -1)), counts - 1)
        ring = counts * rounds
        at = (own + each * counts + offset + abs(offset) * ring) % ring
        return self._take(chunks, (numbers + at // counts) * self._count() + at % counts)

    def _take(self, chunks: Tensor, index: Tensor):
        """Chunks by their number: `(B · N · R, m, c, H)` for an index `(B · N, R, m)`."""
        width = chunks.shape[3]
        taken = ops.take(ops.reshape(chunks, (-1, self.chunk_length * width)), ops.reshape(index, (-1,)), axis=0)
        return ops.reshape(taken, (-1, ops.shape(index)[2], self.chunk_length, width))

    def scatter(self, chunks: Tensor) -> list[Tensor]:
        """Chunks `(B · N · R · n, c, 1, H)` back to a list of R tensors `(B, T, N, H)`."""
        rows, rounds = ops.shape(self.indices)[0], self.indices.shape[1]
        total = self._count() * self.chunk_length
        flat = ops.reshape(chunks, (-1, chunks.shape[3]))
        index = self._inverse(rows, rounds, total)
        return [ops.take(flat, index[:, each], axis=0) for each in range(rounds)]

    def _inverse(self, rows: Tensor, rounds, total: Tensor):
        """The inverse permutation: int `(B, R, T, N)`, rows of the flat chunks."""
        first = ops.reshape(ops.arange(rows * rounds, dtype="int32") * total, (-1, rounds, 1))
        index = ops.reshape(first + self.indices, (-1, 1))
        size = rows * rounds * total
        inverse = ops.scatter(index, ops.arange(size, dtype="int32"), (size,))
        inverse = ops.reshape(inverse, (-1, self.heads, rounds, total))
        return ops.transpose(inverse[:, :, :, : self.length], (0, 2, 3, 1))

    def _count(self):
        return ops.shape(self.indices)[2] // self.chunk_length


def _shifted(chunks: Tensor, offset: int, filling: float):
    """The chunk at `offset` from each in its round, or `filling`."""
    outside = ops.concatenate([ops.full_like(chunks[:, :1], filling)] * abs(offset), axis=1)
    if offset < 0:
        return ops.concatenate([outside, chunks], axis=1)[:, :offset]
    return ops.concatenate([chunks, outside], axis=1)[:, offset:]
