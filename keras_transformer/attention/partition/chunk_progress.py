"""The chunks of a sequence that new tokens complete."""

from __future__ import annotations

from keras import ops

from keras_transformer.attention.partition.bands import block_count
from keras_transformer.utils.types import Tensor


class ChunkProgress:
    """The chunks that new tokens complete.

    Args:
        size: int. Tokens per chunk.
        x: `(B, T, ...)`: the new tokens.
        padding_mask: boolean `(B, T)`: False for padding, which must be on the right; None for no padding.
        cache_index: int32 `()` or `(B,)`: the number of tokens that each row has read before.

    Attributes:
        index: int32 `(1 | B,)`: `cache_index`.
        tokens: int32 `(1 | B,)`: the number of new tokens that are not padding.
        count: the maximum number of chunks that T tokens may complete.
        last: int32 `(1 | B,)`: the number of chunks that they complete.
        fills_any: boolean `()`: whether any row completes a chunk.
    """

    def __init__(self, size: int, x: Tensor, padding_mask: Tensor | None, cache_index: Tensor) -> None:
        self.index = ops.reshape(ops.cast(ops.convert_to_tensor(cache_index), "int32"), (-1,))
        self._batch, length = ops.shape(x)[:2]
        if padding_mask is None:
            self.tokens: Tensor = ops.zeros_like(self.index) + length
        else:
            self.tokens = ops.sum(ops.cast(padding_mask, "int32"), axis=1)
        self.count = block_count(length, size)
        self.last = (self.index + self.tokens) // size - self.index // size
        self.fills_any = ops.any(self.last > 0)

    def broadcast(self, rows: Tensor) -> Tensor:
        """Broadcasts `(1 | B,)` to `(B,)`."""
        return ops.broadcast_to(rows, (self._batch,))
