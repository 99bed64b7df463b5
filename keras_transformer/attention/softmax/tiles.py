"""Tiles of blockwise attention, their masks and positions."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from keras import ops

from keras_transformer.attention.masks import Visibility
from keras_transformer.attention.softmax.tile_position import TilePosition
from keras_transformer.utils.types import Tensor

if TYPE_CHECKING:
    from keras_transformer.attention.softmax.counter_based_dropout import CounterBasedDropout


@dataclasses.dataclass(frozen=True)
class Tiles:
    """The tiles of blocks of queries and keys, which of them to compute, and their masks and biases.

    Attributes:
        sizes: tokens of a block of queries, and of a block of keys; ints, or int32 tensors.
        counts: the numbers of blocks of queries and of keys.
        visibility: of the padded sequences; `query_mask` is not read.
        position: `TilePosition`: of the padded sequences too.
        dropout: `CounterBasedDropout`, or None.
    """

    sizes: tuple
    counts: tuple
    visibility: Visibility
    position: TilePosition
    dropout: CounterBasedDropout | None = None

    def keys_of(self, i: Tensor) -> tuple[Tensor, Tensor]:
        """The range of key blocks that query block `i` attends to, at least one block."""
        size, visible = self.sizes[1], self.visibility
        # The minimum is for tf2onnx: an inner loop must not receive a loop-invariant of the outer loop.
        first, end = integer(0), ops.minimum(integer(i) + self.counts[1], self.counts[1])
        if not (visible.causal or visible.window) or len(visible.key_slots.shape) == 2:
            return first, end
        slots = self._block(visible.query_slots, i, 0)
        if visible.window is not None:
            first = ops.maximum(ops.minimum(integer((ops.min(slots) - visible.window + 1) // size), end - 1), 0)
        reach = 0 if visible.causal or visible.window is None else visible.window - 1
        return first, ops.maximum(ops.minimum(integer((ops.max(slots) + reach) // size + 1), end), first + 1)

    def queries_of(self, j: Tensor) -> tuple[Tensor, Tensor]:
        """The range of query blocks that may attend to key block `j`."""
        (queries, keys), visible = self.sizes, self.visibility
        first, end = 0, self.counts[0]
        if not visible.starts_at_zero:
            return integer(first), integer(end)
        if visible.causal:
            first = j * keys // queries
        elif visible.window is not None:
            first = (j * keys - visible.window + 1) // queries
        if visible.window is not None:
            end = ops.minimum(integer(((j + 1) * keys + visible.window - 2) // queries + 1), end)
        return ops.maximum(integer(first), 0), integer(end)

    def mask(self, i: Tensor, j: Tensor) -> Tensor | None:
        """The mask `(B | 1, N | 1, t, s)` of query block `i` and key block `j`; None if nothing is masked."""
        visible, mask = self.visibility, self.visibility.attention_mask
        if mask is not None:
            mask = take_block(
                take_block(mask, i, self.sizes[0], len(mask.shape) - 2), j, self.sizes[1], len(mask.shape) - 1
            )
        return dataclasses.replace(
            visible,
            query_mask=None,
            key_mask=None if visible.key_mask is None else take_block(visible.key_mask, j, self.sizes[1], 1),
            attention_mask=mask,
            query_slots=self._block(visible.query_slots, i, 0),
            key_slots=self._block(visible.key_slots, j, 1),
        ).dense()

    def positions(self, i: Tensor, j: Tensor) -> tuple[Tensor, Tensor]:
        """The positions of the queries of block `i`, and of the keys of block `j`."""
        return self._block(self.visibility.query_positions, i, 0), self._block(self.visibility.key_positions, j, 1)

    def _block(self, slots: Tensor, index: Tensor, side):
        return take_block(slots, index, self.sizes[side], len(slots.shape) - 1)


def take_block(x: Tensor, index: int | Tensor, size: int, axis: int) -> Tensor:
    """Block `index` of `x` along `axis`; an axis of size 1 is broadcast."""
    if x.shape[axis] == 1:
        return x
    shape = ops.shape(x)
    starts = [index * size if at == axis else 0 for at in range(len(shape))]
    return ops.slice(x, starts, [size if at == axis else extent for at, extent in enumerate(shape)])


def integer(x: int | Tensor) -> Tensor:
    """Converts a count to an int32 tensor, as loop variables must be."""
    return ops.cast(ops.convert_to_tensor(x), "int32")
