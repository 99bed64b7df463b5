"""Segments of a sequence with the tokens that each head keeps, for LongNet's dilated attention.

In the shapes, n is the number of segments, w their length, r the rate, m = w / r the tokens that a head keeps of each.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from keras import ops

from keras_transformer.attention.masks import MASKED_SCORE, Visibility
from keras_transformer.attention.partition.bands import block_count, pad_length, take_rows
from keras_transformer.attention.softmax.partial_softmax import PartialAttention
from keras_transformer.utils.types import Tensor


@dataclasses.dataclass(frozen=True)
class Segments:
    """A partition into segments, in which each head keeps every `rate`-th token.

    Attributes:
        segment: int, or a tensor of it. w, a multiple of `rate`.
        rate: int >= 1. r.
        heads: int. The number of query heads N.
    """

    segment: int | Tensor
    rate: int
    heads: int

    @classmethod
    def of_length(cls, length: int | Tensor, segment: int | Tensor, rate: int, heads: int) -> Segments:
        """Returns the segments of a sequence, no longer than the sequence needs."""
        whole = (length + rate - 1) // rate * rate
        if isinstance(whole, int):
            return cls(max(rate, min(segment, whole)), rate, heads)
        return cls(ops.maximum(rate, ops.minimum(segment, whole)), rate, heads)

    def blocks(self, x: Tensor) -> Tensor:
        """`(B, T, N, ...)` to `(B · n, m, N, ...)`: the tokens that each head keeps of each segment."""
        rest = x.shape[2:]
        length = ops.shape(x)[1]
        x = pad_length(x, 0, self._padded(length) - length)
        if self.rate == 1:
            return ops.reshape(x, (-1, self.segment, *rest))
        x = ops.reshape(x, (-1, self.rate, *rest))
        share = -(-self.heads // self.rate) * rest[0] // self.heads  # Heads that keep the same tokens are adjacent.
        kept = [x[:, offset, first : first + share] for offset, first in enumerate(range(0, rest[0], share))]
        return ops.reshape(ops.concatenate(kept, axis=1), (-1, self.segment // self.rate, *rest))

    def key_blocks(self, x: Tensor) -> Tensor:
        """`(B, T, K, H)` to `(B · n, m, K, H)`; with N heads if query heads of one key head keep different tokens."""
        share, group = -(-self.heads // self.rate), self.heads // x.shape[2]
        if self.rate > 1 and share % group:
            x = ops.repeat(x, group, axis=2)
        return self.blocks(x)

    def visibility(self, visibility: Visibility, batch: int | Tensor, length: int | Tensor) -> Visibility:
        """Returns the `Visibility` within segments, with the key mask and causality of the whole."""
        count, key_mask = self.segment // self.rate, visibility.key_mask
        slots = ops.arange(count, dtype="int32")
        if key_mask is None and not visibility.causal and self._is_filled_up(length):
            key_mask = ops.ones((batch, length), dtype="bool")
        mask = None
        if key_mask is not None:
            heads = 1 if self.rate == 1 else self.heads
            key_mask = ops.expand_dims(ops.cast(key_mask, "bool"), 2)
            key_mask = self.blocks(ops.broadcast_to(key_mask, (batch, length, heads)))  # (B · n, m, N)
            if heads == 1:
                key_mask = ops.squeeze(key_mask, 2)
            else:
                key_mask, mask = None, ops.expand_dims(ops.transpose(key_mask, (0, 2, 1)), 2)
        options = {"causal": visibility.causal, "query_slots": slots, "key_slots": slots}
        return Visibility(key_mask=key_mask, attention_mask=mask, **options)

    def join(self, part: PartialAttention, length: int | Tensor) -> PartialAttention:
        """A `PartialAttention` of blocks back to `(B, length, N, ...)`; tokens that a head does not keep have no weight."""
        if self.rate == 1:
            return PartialAttention(*(self._join(x, length) for x in part))
        kept = _kept(np.arange(self.rate), self.rate, self.heads)[None, :, :, None]  # (1, r, N, 1)
        context, log_sum_exp = (ops.reshape(x, (-1, 1, self.heads, x.shape[3])) for x in part)
        context = context * ops.cast(kept, context.dtype)
        log_sum_exp = ops.where(kept, log_sum_exp, MASKED_SCORE)
        return PartialAttention(self._join(context, length), self._join(log_sum_exp, length))

    def _join(self, x: Tensor, length: int | Tensor):
        return ops.reshape(x, (-1, self._padded(length), *x.shape[2:]))[:, :length]

    def _padded(self, length: int | Tensor) -> int | Tensor:
        return block_count(length, self.segment) * self.segment

    def _is_filled_up(self, length: int | Tensor):
        return not isinstance(length, int) or self._padded(length) != length


def segment_mask_of_heads(
    query_slots: Tensor, key_slots: Tensor, segment: int | Tensor, rate: int, heads: int
) -> Tensor:
    """`(B, N, T, S)`: the attention mask of each head; slots are `(1 | B, T)` and `(B, S)`."""
    query_slots = ops.expand_dims(ops.expand_dims(query_slots, 1), 3)
    key_slots = ops.expand_dims(ops.expand_dims(key_slots, 1), 2)
    offsets = np.arange(heads).reshape(1, -1, 1, 1) // -(-heads // rate)
    same = ops.equal(query_slots // segment, key_slots // segment)
    kept = [ops.equal(ops.mod(slots, rate), offsets) for slots in (query_slots, key_slots)]
    return ops.logical_and(same, ops.logical_and(*kept))


def align_rows(x: Tensor, shift: int | Tensor, before: int | Tensor, common: int) -> Tensor:
    """`(B, T, ...)` shifted by `shift + before` to the right, `(B, before + T + common, ...)`; shift is `(B, 1)`."""
    size = before + ops.shape(x)[1] + common
    return take_rows(pad_length(x, common + before, common), common - shift, size)


def _kept(indices, rate: int, heads: int):
    """`(len(indices), heads)`: which heads keep the token at an index of a segment."""
    return indices[:, None] % rate == (np.arange(heads) // -(-heads // rate))[None]
