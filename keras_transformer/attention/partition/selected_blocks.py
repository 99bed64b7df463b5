"""Blocks of keys that each query selects by importance, as in native sparse attention.

Shapes: K key/value heads, G query heads of each, C compressed blocks, m selectable blocks, n selected blocks.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from keras import ops

from keras_transformer.attention.masks import Visibility
from keras_transformer.attention.partition.bands import block_count
from keras_transformer.utils.types import Tensor

if TYPE_CHECKING:
    from keras_transformer.attention.mechanisms.softmax import SoftmaxAttention

# Above every importance: that of a block which is always selected.
_ALWAYS = 1e6


def take_slots(x: Tensor, slots: Tensor) -> Tensor:
    """Gathers rows of each head: `(B, K, L, W)` at the slots `(1 | B, 1 | K, M)` to `(B · K, M, W)`; slots are in [0, L)."""
    batch, heads, length, _ = ops.shape(x)
    width = x.shape[3]
    first = ops.reshape(ops.arange(batch * heads, dtype="int32") * length, (batch, heads, 1))
    rows = ops.take(ops.reshape(x, (-1, width)), ops.reshape(first + slots, (-1,)), axis=0)
    return ops.reshape(rows, (-1, ops.shape(slots)[2], width))


def block_importance(weights: Tensor, pieces_of_compressed: int, pieces_of_block: int, count: int | Tensor) -> Tensor:
    """Returns the importance of each selectable block, from the attention to compressed blocks.

        p'[j] = Σ_m Σ_n p[(l'/d) j + m - n]   for 0 <= m < l'/d and 0 <= n < l/d

    A compressed block counts once for each piece of d tokens that it shares with a selectable block.

    Args:
        weights: float `(R, T, C)`: p, summed over the heads of a group.
        pieces_of_compressed: int. l / d.
        pieces_of_block: int. l' / d.
        count: the number m of selectable blocks, with `m · l'/d >= C`.

    Returns:
        `(R, T, m)`.
    """
    length, present = ops.shape(weights)[1], ops.shape(weights)[2]
    before, total = pieces_of_compressed - 1, count * pieces_of_block
    shape = [(ops.shape(weights)[0], length, size) for size in (before, total - present)]
    padded = ops.concatenate([ops.zeros(shape[0]), ops.cast(weights, "float32"), ops.zeros(shape[1])], axis=2)
    shared = padded[:, :, before : before + total]
    for shift in range(1, pieces_of_compressed):
        shared = shared + padded[:, :, before - shift : before - shift + total]
    pieces = ops.reshape(shared, (-1, length * count, pieces_of_block))
    return ops.reshape(ops.sum(pieces, axis=2), (-1, length, count))


@dataclasses.dataclass(frozen=True)
class BlockSelection:
    """Selection of the blocks of largest importance, with the first block and the last ones always among them.

    Attributes:
        block_size: int >= 1. l'.
        num_blocks: int >= 1. n.
        num_local_blocks: int >= 1. The block of the query and those before it that are always selected.
    """

    block_size: int
    num_blocks: int
    num_local_blocks: int

    def choose(self, importance: Tensor, slots: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the selected blocks, int32 `(B, K, T, n)`, and which of them are valid.

        Args:
            importance: float32 `(B, K, T, m)`.
            slots: int32 `(B, T)`: those of the queries.
        """
        heads, count = importance.shape[1], ops.shape(importance)[3]
        own = ops.expand_dims(ops.expand_dims(slots // self.block_size, 1), 3)
        blocks = ops.reshape(ops.arange(count, dtype="int32"), (1, 1, 1, -1))
        is_always = ops.logical_or(blocks > own - self.num_local_blocks, ops.equal(blocks, 0))
        bonus = ops.cast(is_always, "float32") * _ALWAYS
        ranked = ops.where(blocks <= own, importance + bonus, -ops.ones_like(importance))
        if importance.shape[3] is None or importance.shape[3] < self.num_blocks:
            padding = (ops.shape(ranked)[0], heads, ops.shape(ranked)[2], self.num_blocks)
            ranked = ops.concatenate([ranked, ops.full(padding, -1.0, dtype="float32")], axis=3)
        best, chosen = ops.top_k(ranked, self.num_blocks)
        return ops.minimum(ops.cast(chosen, "int32"), count - 1), best >= 0

    def attend(
        self,
        softmax: SoftmaxAttention,
        query: Tensor,
        slots: Tensor,
        key: Tensor,
        value: Tensor,
        importance: Tensor,
        key_mask: Tensor | None,
    ) -> Tensor:
        """Returns the context `(B, T, N, H_value)` of attention to the tokens of the selected blocks, up to the query.

        Args:
            softmax: `SoftmaxAttention`.
            query: float `(B, T, N, H)`.
            slots: int32 `(B, T)`: those of the queries.
            key: float `(B, K, L, H)`.
            value: float `(B, K, L, H_value)`.
            importance: float32 `(B, K, T, m)`.
            key_mask: boolean `(B, L)`, or None.
        """
        (batch, length, heads), key_heads, size = ops.shape(query)[:3], key.shape[1], self.block_size
        chosen, valid = self.choose(importance, slots)
        within = ops.reshape(ops.arange(size, dtype="int32"), (1, 1, 1, 1, -1))
        selected = ops.expand_dims(chosen, 4) * size + within  # (B, K, T, n, l')
        queries = ops.reshape(slots, (batch, 1, length, 1, 1))
        visible = ops.logical_and(selected <= queries, ops.expand_dims(valid, 4))
        flat = (batch, key_heads, length * self.num_blocks * size)
        selected = ops.reshape(ops.minimum(selected, ops.shape(key)[2] - 1), flat)
        width = self.num_blocks * size
        seen = ops.reshape(visible, (-1, width))
        if key_mask is not None:
            real = ops.broadcast_to(ops.cast(key_mask, "int32")[:, None, :, None], (batch, key_heads, *_column(key)))
            seen = ops.logical_and(seen, ops.reshape(take_slots(real, selected), (-1, width)) > 0)
        keys, values = (ops.reshape(take_slots(x, selected), (-1, width, 1, x.shape[3])) for x in (key, value))
        context = softmax(_of_groups(query, key_heads), keys, values, visibility=Visibility(key_mask=seen))
        context = ops.reshape(context, (-1, key_heads, length, heads // key_heads * value.shape[3]))
        return ops.reshape(ops.transpose(context, (0, 2, 1, 3)), (-1, length, heads, value.shape[3]))

    def count(self, length: int | Tensor) -> int | Tensor:
        """The number m of blocks of `length` tokens."""
        return block_count(length, self.block_size)


def _column(x: Tensor) -> tuple[int | Tensor, int]:
    return ops.shape(x)[2], 1


def _of_groups(query: Tensor, key_heads: int) -> Tensor:
    """`(B, T, N, H)` to `(B · K · T, 1, G, H)`: each query of each group of heads is a row."""
    length, heads, width = ops.shape(query)[1], query.shape[2], query.shape[3]
    group = heads // key_heads
    grouped = ops.transpose(ops.reshape(query, (-1, length, key_heads, group * width)), (0, 2, 1, 3))
    return ops.reshape(grouped, (-1, 1, group, width))
