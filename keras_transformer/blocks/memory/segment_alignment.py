"""Splits new tokens of rows at different offsets within their segments into loop iterations that end with segments."""

from __future__ import annotations

import dataclasses

from keras import ops

from keras_transformer.attention.partition.bands import block_count, pad_length, take_rows
from keras_transformer.utils.types import Tensor


@dataclasses.dataclass(frozen=True)
class SegmentAlignment:
    """Iterations over new tokens: the first completes the current segment of each row, the others read a segment each.

    In the shapes, T is the number of new tokens, R the number of token slots of an iteration, n the number of iterations.

    Attributes:
        segment_length: int >= 1. S.
        length: int, or a tensor of it. T.
        remaining: int32 `(B,)`: the number of tokens until the current segment of each row is complete.
        size: int. R, S or a smaller T.
        count: int, or a tensor of it. n.
    """

    segment_length: int
    length: Tensor
    remaining: Tensor
    size: int
    count: int | Tensor

    @classmethod
    def of(cls, x: Tensor, offsets: Tensor, segment_length: int) -> SegmentAlignment:
        """Returns the alignment of new tokens `(B, T, ...)` that start at `offsets` `(B,)` of their segments."""
        length = ops.shape(x)[1]
        size = segment_length if x.shape[1] is None else min(x.shape[1], segment_length)
        count = block_count(length + segment_length - 1, segment_length)
        return cls(segment_length, length, segment_length - offsets, size, count)

    def split(self, x: Tensor) -> Tensor:
        """`(B, T, D)` to `(n, B, R, D)`."""
        later = (self.count - 1) * self.size
        x = pad_length(x, 0, self.segment_length + later - self.length)
        if not isinstance(self.count, int) or self.count > 1:
            x = ops.concatenate([x[:, : self.size], take_rows(x, self.remaining, later)], axis=1)
        x = ops.reshape(x[:, : later + self.size], (-1, self.count, self.size, x.shape[2]))
        return ops.transpose(x, (1, 0, 2, 3))

    def join(self, x: Tensor) -> Tensor:
        """`(n, B, R, D)` to `(B, T, D)`."""
        total, width = self.count * self.size, x.shape[3]
        x = ops.reshape(ops.transpose(x, (1, 0, 2, 3)), (-1, total, width))
        indices = ops.expand_dims(ops.arange(self.length, dtype="int32"), 0)
        remaining = ops.expand_dims(self.remaining, 1)
        indices = ops.where(indices < remaining, indices, indices - remaining + self.size)  # (B, T)
        rows = ops.expand_dims(ops.arange(ops.shape(x)[0], dtype="int32"), 1) * total
        return ops.take(ops.reshape(x, (-1, width)), rows + indices, axis=0)

    def token_counts(self, index: Tensor, lengths: Tensor) -> Tensor:
        """Returns how many of the `lengths` `(B,)` new tokens of each row iteration `index` reads, int32 `(B,)`."""
        is_later = ops.cast(index > 0, "int32")
        before = is_later * (self.remaining + (index - 1) * self.segment_length)
        most = ops.where(index > 0, self.segment_length + 0 * self.remaining, self.remaining)
        return ops.maximum(ops.minimum(lengths - before, most), 0)
