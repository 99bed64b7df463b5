"""Blocks of a sequence with their neighboring blocks, for sliding-window attention at linear cost.

Blocks are folded into the batch, so that attention to short sequences applies to blocks. In the shapes,
n is the number of blocks, `ceil(T / block_size)`.
"""

from __future__ import annotations

import dataclasses
import math

from keras import ops

from keras_transformer.attention.masks import Visibility, with_batch_axis
from keras_transformer.utils.types import Tensor


@dataclasses.dataclass(frozen=True)
class Bands:
    """A partition into blocks, in which a block of queries attends to its block of keys and to neighbors.

    Attributes:
        block_size: int >= 1. Tokens of a block.
        before: int >= 0. Number of attended blocks before its own.
        after: int >= 0. Number of attended blocks after it.
    """

    block_size: int
    before: int
    after: int

    @classmethod
    def of_window(cls, window: int, block_size: int, causal: bool) -> Bands:
        """Returns the bands that contain all keys fewer than `window` positions away."""
        reach = -(-(window - 1) // block_size)
        return cls(block_size, reach, 0 if causal else reach)

    def blocks(self, x: Tensor) -> Tensor:
        """`(B, T, ...)` to `(B · n, block_size, ...)`, padded with zeros at the end."""
        return ops.reshape(self._padded(x, 0, 0), (-1, self.block_size, *x.shape[2:]))

    def neighbors(self, x: Tensor) -> Tensor:
        """`(B, T, ...)` to `(B · n, (before + 1 + after) · block_size, ...)`: zeros beyond both ends."""
        count = self.count(ops.shape(x)[1])
        padded = self._padded(x, self.before, self.after)
        size = self.block_size
        parts = [padded[:, offset * size : (offset + count) * size] for offset in range(self.before + 1 + self.after)]
        parts = [ops.reshape(part, (-1, size, *x.shape[2:])) for part in parts]
        return parts[0] if len(parts) == 1 else ops.concatenate(parts, axis=1)

    def join(self, x: Tensor, length: int | Tensor) -> Tensor:
        """`(B · n, block_size, ...)` back to `(B, length, ...)`."""
        joined = ops.reshape(x, (-1, self.count(length) * self.block_size, *x.shape[2:]))
        return joined[:, :length]

    def visibility(self, visibility: Visibility, query: Tensor, key: Tensor) -> Visibility:
        """Returns the `Visibility` of blocks; keys beyond both ends are masked.

        Args:
            visibility: of the whole sequences.
            query: `(B, T, ...)`, for its batch size and length.
            key: `(B, T, ...)`.
        """
        batch, key_mask = ops.shape(key)[0], visibility.key_mask
        if key_mask is None:
            key_mask = ops.ones(ops.shape(key)[:2], dtype="bool")
        slots = [with_batch_axis(each, batch) for each in (visibility.query_slots, visibility.key_slots)]
        positions = [with_batch_axis(each, batch) for each in (visibility.query_positions, visibility.key_positions)]
        return Visibility(
            query_mask=None if visibility.query_mask is None else self.blocks(visibility.query_mask),
            key_mask=self.neighbors(key_mask),
            causal=visibility.causal,
            window=visibility.window,
            query_slots=self.blocks(slots[0]),
            key_slots=self.neighbors(slots[1]),
            query_positions=self.blocks(positions[0]),
            key_positions=self.neighbors(positions[1]),
        )

    def count(self, length: int | Tensor) -> int | Tensor:
        """The number of blocks n."""
        return block_count(length, self.block_size)

    def _padded(self, x: Tensor, before: int | Tensor, after: int | Tensor) -> Tensor:
        length = ops.shape(x)[1]
        end = self.count(length) * self.block_size - length + after * self.block_size
        return pad_length(x, before * self.block_size, end)


def block_count(length: int | Tensor, size: int | Tensor) -> int | Tensor:
    """Returns the number of blocks of `size` that `length` tokens need."""
    return (length + size - 1) // size


def pad_to_blocks(x: Tensor, size: int | Tensor) -> Tensor:
    """Pads `(B, T, ...)` with zeros at the end, to whole blocks."""
    length = ops.shape(x)[1]
    return pad_length(x, 0, block_count(length, size) * size - length)


def take_rows(x: Tensor, starts: int | Tensor, size: int | Tensor) -> Tensor:
    """`x[b, starts[b] : starts[b] + size]` of each row of `(B, L, ...)`; starts are `(B,)` or `(B, 1)`."""
    length, rest = ops.shape(x)[1], x.shape[2:]
    first = ops.arange(ops.shape(x)[0], dtype="int32") * length
    indices = ops.expand_dims(first, 1) + ops.reshape(starts, (-1, 1))
    indices = indices + ops.expand_dims(ops.arange(size, dtype="int32"), 0)
    taken = ops.take(ops.reshape(x, (-1, math.prod(rest))), indices, axis=0)
    return ops.reshape(taken, (-1, size, *rest))


def last_rows(joined: Tensor, length: int | Tensor, mask: Tensor | None, size: int) -> Tensor:
    """Returns the last `size` tokens `(B, size, D)` of each row before its padding, which is on the right.

    Args:
        joined: `(B, size + T, D)`: earlier and new tokens.
        length: int, or a scalar tensor. T.
        mask: boolean `(B, T)`, True = a real token; None for all.
        size: int >= 0.
    """
    if mask is None:
        return joined[:, length:]
    return take_rows(joined, ops.sum(ops.cast(mask, "int32"), axis=1), size)


def pad_length(x: Tensor, before: int | Tensor, after: int | Tensor) -> Tensor:
    """Pads axis 1 of `(B, T, ...)` with zeros, or False, before and after."""
    if isinstance(before, int) and isinstance(after, int) and before == after == 0:
        return x
    zeros = [ops.zeros((ops.shape(x)[0], size, *x.shape[2:]), dtype=x.dtype) for size in (before, after)]
    return ops.concatenate([zeros[0], x, zeros[1]], axis=1)
