"""Strided subsequences `x[r::stride]` of a sequence, folded into the batch."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from keras import ops

from keras_transformer.attention.masks import Visibility, with_batch_axis
from keras_transformer.attention.partition.bands import block_count, pad_length
from keras_transformer.utils.types import Tensor


@dataclasses.dataclass(frozen=True)
class StridedSubsequences:
    """The subsequences `x[r::stride]`: token t is token `t // stride` of subsequence `t mod stride`.

    In the shapes, n is `ceil(T / stride)`.

    Attributes:
        stride: int >= 1.
    """

    stride: int

    def fold(self, x: Tensor) -> Tensor:
        """`(B, T, ...)` to `(B · stride, n, ...)`, padded with zeros at the end."""
        rest, count = x.shape[2:], self.count(ops.shape(x)[1])
        x = pad_length(x, 0, count * self.stride - ops.shape(x)[1])
        x = ops.transpose(ops.reshape(x, (-1, count, self.stride, math.prod(rest))), (0, 2, 1, 3))
        return ops.reshape(x, (-1, count, *rest))

    def unfold(self, x: Tensor, length: Tensor) -> Tensor:
        """`(B · stride, n, ...)` back to `(B, length, ...)`."""
        rest, count = x.shape[2:], self.count(length)
        x = ops.transpose(ops.reshape(x, (-1, self.stride, count, math.prod(rest))), (0, 2, 1, 3))
        return ops.reshape(x, (-1, count * self.stride, *rest))[:, :length]

    def visibility(self, visibility: Visibility, query: Tensor, **changes: Any) -> Visibility:
        """Returns the `Visibility` of the subsequences, with their own slots; padding at the end is masked.

        Args:
            visibility: of the whole sequences, with consecutive slots.
            query: `(B, T, ...)`, for the batch size and length of queries and keys.
            **changes: fields of the result.
        """
        batch, length = ops.shape(query)[0], ops.shape(query)[1]
        slots = ops.arange(self.count(length), dtype="int32")
        key_mask = visibility.key_mask
        if key_mask is None:
            key_mask = ops.ones((batch, length), dtype="bool")
        return Visibility(
            query_mask=None if visibility.query_mask is None else self.fold(visibility.query_mask),
            key_mask=self.fold(key_mask),
            causal=visibility.causal,
            query_slots=slots,
            key_slots=slots,
            query_positions=self.fold(with_batch_axis(visibility.query_positions, batch)),
            key_positions=self.fold(with_batch_axis(visibility.key_positions, batch)),
            **changes,
        )

    def count(self, length: int | Tensor) -> int | Tensor:
        """The length n of a subsequence."""
        return block_count(length, self.stride)
