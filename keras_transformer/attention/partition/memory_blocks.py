"""Segments of a sequence with the tokens before them, for segment recurrence at linear cost.

Segments are folded into the batch. In the shapes, S is the length of a segment, M that of its memory, n the
number of segments.
"""

from __future__ import annotations

import dataclasses

from keras import ops

from keras_transformer.attention.masks import Visibility
from keras_transformer.attention.partition.bands import block_count, pad_length, take_rows
from keras_transformer.utils.types import Tensor


@dataclasses.dataclass(frozen=True)
class MemoryBlocks:
    """A partition into segments, in which each segment attends to its keys and the M keys before it.

    Attributes:
        segment_length: int >= 1. S.
        memory_length: int >= 1. M.
    """

    segment_length: int
    memory_length: int

    def segments(self, x: Tensor) -> Tensor:
        """`(B, n · S, ...)` to `(B · n, S, ...)`."""
        return ops.reshape(x, (-1, self.segment_length, *x.shape[2:]))

    def memories(self, x: Tensor) -> Tensor:
        """`(B, M + n · S, ...)` to `(B · n, M, ...)`: the M tokens before each segment."""
        size, memory = self.segment_length, self.memory_length
        length, short = ops.shape(x)[1] - memory, memory % size
        parts = [self.segments(x[:, start : start + length]) for start in range(short, memory, size)]
        if short:
            parts = [self.segments(x[:, :length])[:, :short], *parts]
        return parts[0] if len(parts) == 1 else ops.concatenate(parts, axis=1)

    def keys(self, remembered: Tensor, own: Tensor) -> Tensor:
        """`(B, M + n · S, ...)` and `(B, n · S, ...)` to `(B · n, M + S, ...)`: the keys of each segment."""
        return ops.concatenate([self.memories(remembered), self.segments(own)], axis=1)

    def pad(self, x: Tensor, before: int | Tensor = 0) -> Tensor:
        """Pads with `before` zeros at the start, and at the end to whole segments."""
        length = ops.shape(x)[1]
        return pad_length(x, before, block_count(length, self.segment_length) * self.segment_length - length)

    def aligned_length(self, length: int | Tensor) -> int | Tensor:
        """n · S such that `length` tokens fit from any offset in a segment on."""
        return block_count(length + self.segment_length - 1, self.segment_length) * self.segment_length

    def align(self, x: Tensor, offsets: Tensor, length: int | Tensor, before: int | Tensor) -> Tensor:
        """Shifts each row to align its segments with the partition.

        Args:
            x: `(B, before + T, ...)`: new tokens after earlier ones.
            offsets: int32 `(1 | B, 1)`: the offset of the first of the T tokens in its segment.
            length: as `aligned_length` returns it.
            before: int, `M + S - 1` for keys and `S - 1` for queries, as the padding for the shift.

        Returns:
            `(B, before - (S - 1) + length, ...)`.
        """
        padding = self.segment_length - 1
        x = pad_length(x, 0, length - (ops.shape(x)[1] - before))
        return take_rows(x, padding - offsets, before - padding + length)

    def visibility(self, seen: Tensor, positions: tuple[Tensor, Tensor] | None, window: int | None) -> Visibility:
        """Returns the causal visibility of the queries of each segment over its `keys`.

        Slots are relative to a segment, so that all segments share one mask and one bias.

        Args:
            seen: boolean `(B, M + n · S)`: False for padding.
            positions: of queries, `(B, n · S)`, and of keys, `(B, M + n · S)`; None for their order.
            window: as in `Visibility`.
        """
        memory = self.memory_length
        slots = ops.arange(memory + self.segment_length, dtype="int32")
        query_positions, key_positions = slots[memory:], slots
        if positions is not None:
            query_positions = self.segments(positions[0])
            key_positions = self.keys(positions[1], positions[1][:, memory:])
        return Visibility(
            query_mask=self.segments(seen[:, memory:]),
            key_mask=self.keys(seen, seen[:, memory:]),
            causal=True,
            window=window,
            query_slots=slots[memory:],
            key_slots=slots,
            query_positions=query_positions,
            key_positions=key_positions,
        )
