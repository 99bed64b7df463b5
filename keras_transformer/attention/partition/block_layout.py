"""Block-sparse attention by a layout: each block of queries attends to the blocks of keys in its row of the layout.

Whole blocks are gathered, and each block of queries becomes a row of the batch with the keys that it attends to: the cost
grows with the entries of the table. In the shapes, n is the number of blocks and R that of the selected blocks of queries.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

from keras import ops

from keras_transformer.attention.masks import Visibility, with_batch_axis
from keras_transformer.attention.partition.bands import block_count, pad_to_blocks
from keras_transformer.utils.types import Tensor

if TYPE_CHECKING:
    from keras_transformer.attention.mechanisms.softmax import SoftmaxAttention


@dataclasses.dataclass(frozen=True)
class BlockLayout:
    """The blocks of keys that each block of queries attends to.

    Attributes:
        block_size: int >= 1. Tokens of a block.
        rows: int32 `(1 | B, R)`: the blocks of queries; None for all of them, in order.
        columns: int32 `(1 | B, R, degree)`: the blocks of keys; one that occurs twice in a row counts twice.
        valid: boolean, of the shape of `columns`: False for padding of the row.
    """

    block_size: int
    rows: Tensor | None
    columns: Tensor | None
    valid: Tensor | None

    def attend(
        self,
        softmax: SoftmaxAttention,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        visibility: Visibility,
        **options: object,
    ) -> Tensor:
        """Returns the context of the selected blocks, `(B, R, block_size · N · H_value)`.

        Args:
            softmax: `SoftmaxAttention`.
            query, key, value: `(B, T, ...)`.
            visibility: of the whole sequences, with consecutive slots.
            **options: `position` and `training`.
        """
        context = softmax(
            self.queries(query),
            self.keys(key),
            self.keys(value),
            visibility=self.visibility(visibility, query),
            **options,
        )
        count = ops.shape(self.columns)[1]
        return ops.reshape(context, (-1, count, self.block_size * context.shape[2] * context.shape[3]))

    def queries(self, x: Tensor) -> Tensor:
        """`(B, T, ...)` to `(B · R, block_size, ...)`."""
        if self.rows is None:
            x = pad_to_blocks(x, self.block_size)
            return ops.reshape(x, (-1, self.block_size, *x.shape[2:]))
        return self._gather(x, self.rows)

    def keys(self, x: Tensor) -> Tensor:
        """`(B, T, ...)` to `(B · R, degree · block_size, ...)`."""
        gathered = self._gather(x, ops.reshape(self.columns, (ops.shape(self.columns)[0], -1)))
        return ops.reshape(gathered, (-1, ops.shape(self.columns)[2] * self.block_size, *x.shape[2:]))

    def visibility(self, visibility: Visibility, query: Tensor) -> Visibility:
        """Returns the `Visibility` of the selected blocks and the keys that they attend to."""
        shape = ops.shape(query)[:2]
        real = visibility.key_mask
        real = ops.ones(shape, dtype="bool") if real is None else ops.cast(real, "bool")
        valid = ops.broadcast_to(self.valid, (shape[0], *ops.shape(self.valid)[1:]))
        valid = ops.repeat(ops.reshape(valid, (-1, ops.shape(valid)[2])), self.block_size, axis=1)
        slots = ops.expand_dims(ops.arange(shape[1], dtype="int32"), 0)
        slots, positions, key_positions = (
            with_batch_axis(x, shape[0]) for x in (slots, visibility.query_positions, visibility.key_positions)
        )
        return Visibility(
            query_mask=None if visibility.query_mask is None else self.queries(visibility.query_mask),
            key_mask=ops.logical_and(self.keys(real), valid),
            causal=visibility.causal,
            query_slots=self.queries(slots),
            key_slots=self.keys(slots),
            query_positions=self.queries(positions),
            key_positions=self.keys(key_positions),
        )

    def _gather(self, x: Tensor, ids):
        """Blocks `ids` `(1 | B, m)` of `(B, T, ...)`: `(B · m, block_size, ...)`."""
        rest, count = x.shape[2:], block_count(ops.shape(x)[1], self.block_size)
        width = self.block_size * math.prod(rest)
        first = ops.reshape(ops.arange(ops.shape(x)[0], dtype="int32") * count, (-1, 1))
        x = ops.reshape(pad_to_blocks(x, self.block_size), (-1, width))
        gathered = ops.take(x, ops.reshape(first + ops.minimum(ids, count - 1), (-1,)), axis=0)
        return ops.reshape(gathered, (-1, self.block_size, *rest))


def scatter_blocks(context: Tensor, rows: Tensor, count: int | Tensor) -> Tensor:
    """Scatters blocks of context into all blocks, with zeros elsewhere.

    Args:
        context: `(B, R, width)`.
        rows: int32 `(1 | B, R)`: the index of each; no duplicates in a row.
        count: the number of all blocks n.

    Returns:
        `(B, n, width)`.
    """
    batch, width = ops.shape(context)[0], context.shape[2]
    first = ops.reshape(ops.arange(batch, dtype="int32") * count, (-1, 1))
    empty = ops.zeros((batch * count, width), dtype=context.dtype)
    positions = ops.reshape(first + rows, (-1, 1))
    filled = ops.scatter_update(empty, positions, ops.reshape(context, (-1, width)))
    return ops.reshape(filled, (-1, count, width))


def join_blocks(context: Tensor, length: Tensor, heads: tuple[int, int]) -> Tensor:
    """`(B, n, block_size · N · H)` to `(B, length, N, H)`; `heads` is `(N, H)`."""
    size = context.shape[2] // (heads[0] * heads[1])
    joined = ops.reshape(context, (-1, ops.shape(context)[1] * size, *heads))
    return joined[:, :length]
