"""Sequences cut into segments, each beside the tokens before it: what segment recurrence reads, at linear cost.

A segment takes a row of its own in the batch. In the shapes, S is the length of a segment, M that of its memory, n the
number of segments.
"""

from __future__ import annotations

import dataclasses

from keras import ops

from keras_transformer.attention.partition.bands import block_count, pad_length, take_rows
from keras_transformer.utils.types import Tensor


@dataclasses.dataclass(frozen=True)
class MemoryBlocks:
    """How a sequence is cut: each segment of queries reads its own keys, and the M keys before its first.

    Attributes:
        segment_length: int >= 1. S.
        memory_length: int >= 1. M.
    """

    segment_length: int
    memory_length: int

    def segments(self, x: Tensor):
        """`(B, n · S, ...)` to `(B · n, S, ...)`."""
        return ops.reshape(x, (-1, self.segment_length, *x.shape[2:]))

    def memories(self, x: Tensor):
        """`(B, M + n · S, ...)` to `(B · n, M, ...)`: the M places before each segment."""
        size, memory = self.segment_length, self.memory_length
        length, short = ops.shape(x)[1] - memory, memory % size
        parts = [self.segments(x[:, start : start + length]) for start in range(short, memory, size)]
        if short:
            parts = [self.segments(x[:, :length])[:, :short], *parts]
        return parts[0] if len(parts) == 1 else ops.concatenate(parts, axis=1)

    def keys(self, remembered: Tensor, own: Tensor):
        """`(B, M + n · S, ...)` and `(B, n · S, ...)` to `(B · n, M + S, ...)`: what each segment reads."""
        return ops.concatenate([self.memories(remembered), self.segments(own)], axis=1)

    def pad(self, x: Tensor, before: Tensor = 0):
        """Zeros `before`, and at the end up to whole segments."""
        length = ops.shape(x)[1]
        return pad_length(x, before, block_count(length, self.segment_length) * self.segment_length - length)

    def aligned_length(self, length: Tensor):
        """n · S, so that `length` tokens fit from any place of a segment on."""
        return block_count(length + self.segment_length - 1, self.segment_length) * self.segment_length

    def align(self, x: Tensor, offsets: Tensor, length: Tensor, before: Tensor):
        """Moves each row so that segments begin where rows are cut.

        Args:
            x: `(B, before + T, ...)`: tokens behind others that came before them.
            offsets: int32 `(1 | B, 1)`: the place of the first of the T tokens in its segment.
            length: as `aligned_length` gives it.
            before: int, `M + S - 1` for keys and `S - 1` for queries, so that there is room to move in.

        Returns:
            `(B, before - (S - 1) + length, ...)`.
        """
        room = self.segment_length - 1
        x = pad_length(x, 0, length - (ops.shape(x)[1] - before))
        return take_rows(x, room - offsets, before - room + length)
