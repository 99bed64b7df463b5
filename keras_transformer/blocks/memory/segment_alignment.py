"""New tokens of rows that stand at different places of their segments, arranged so that a round ends no later than those."""

import dataclasses
from typing import Any

from keras import ops

from keras_transformer.attention.partition.bands import block_count, pad_length, take_rows


@dataclasses.dataclass(frozen=True)
class SegmentAlignment:
    """The first round reads what is left of each row's segment, the others a segment each.

    In the shapes, T is the number of new tokens, R the room of a round, n the number of rounds.

    Attributes:
        segment_length: int >= 1. S.
        length: int, or a tensor of it. T.
        left: int32 `(B,)`: how many tokens the segment of each row lacks.
        size: int. R, S or a smaller T.
        count: int, or a tensor of it. n.
    """

    segment_length: int
    length: Any
    left: Any
    size: int
    count: Any

    @classmethod
    def of(cls, x, offsets, segment_length):
        """Those of new tokens `(B, T, ...)`, whose rows stand at the places `offsets` `(B,)` of their segments."""
        length = ops.shape(x)[1]
        size = segment_length if x.shape[1] is None else min(x.shape[1], segment_length)
        count = block_count(length + segment_length - 1, segment_length)
        return cls(segment_length, length, segment_length - offsets, size, count)

    def cut(self, x):
        """`(B, T, D)` to `(n, B, R, D)`."""
        later = (self.count - 1) * self.size
        x = pad_length(x, 0, self.segment_length + later - self.length)
        if not isinstance(self.count, int) or self.count > 1:
            x = ops.concatenate([x[:, : self.size], take_rows(x, self.left, later)], axis=1)
        x = ops.reshape(x[:, : later + self.size], (-1, self.count, self.size, x.shape[2]))
        return ops.transpose(x, (1, 0, 2, 3))

    def join(self, x):
        """`(n, B, R, D)` back to `(B, T, D)`."""
        total, width = self.count * self.size, x.shape[3]
        x = ops.reshape(ops.transpose(x, (1, 0, 2, 3)), (-1, total, width))
        places = ops.expand_dims(ops.arange(self.length, dtype="int32"), 0)
        left = ops.expand_dims(self.left, 1)
        places = ops.where(places < left, places, places - left + self.size)  # (B, T)
        rows = ops.expand_dims(ops.arange(ops.shape(x)[0], dtype="int32"), 1) * total
        return ops.take(ops.reshape(x, (-1, width)), rows + places, axis=0)

    def tokens(self, index, lengths):
        """How many tokens of each row round `index` reads, int32 `(B,)`; rows have so many new tokens, `lengths` `(B,)`."""
        is_later = ops.cast(index > 0, "int32")
        before = is_later * (self.left + (index - 1) * self.segment_length)
        most = ops.where(index > 0, self.segment_length + 0 * self.left, self.left)
        return ops.maximum(ops.minimum(lengths - before, most), 0)
