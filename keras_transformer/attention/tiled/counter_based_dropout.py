"""Counter-based dropout, reproducible tile by tile: the random number of a weight is a hash of its index."""

from __future__ import annotations

import dataclasses
from typing import Any

from keras import ops

from keras_transformer.utils.types import Tensor


@dataclasses.dataclass(frozen=True)
class CounterBasedDropout:
    """Dropout factors of a tile: 0 for dropped weights, `1 / (1 - rate)` for others, equal in every call.

    Attributes:
        rate: float in (0, 1).
        seed: integers `(2,)`, one pair for each step of training.
    """

    rate: float
    seed: Any

    def factors(self, weights: Tensor, sizes: tuple[Tensor, Tensor], i: Tensor, j: Tensor) -> Tensor:
        """Returns the factors of query block `i` and key block `j`, float32 `(B, N, t, s)`, the shape of the weights.

        Args:
            weights: `(B, N, t, s)`.
            sizes: tokens of a block of queries, and of a block of keys.
            i: int32 `()`.
            j: int32 `()`.
        """
        batch, heads, length, key_length = ops.shape(weights)
        seed = ops.cast(self.seed, "int32")
        rows = _mix(_count(batch * heads, 0) + seed[0]) + seed[1]
        rows = ops.reshape(rows, (-1, heads, 1, 1))
        rows = _mix(rows + ops.reshape(_count(length, i * sizes[0]), (1, 1, -1, 1)))
        columns = ops.reshape(_mix(_count(key_length, j * sizes[1]) + 1), (1, 1, 1, -1))
        drawn = ops.bitwise_and(_mix(ops.bitwise_xor(rows, columns)), 0x7FFFFFFF)
        kept = ops.greater_equal(drawn, int(self.rate * 2**31))
        return ops.cast(kept, "float32") * (1.0 / (1.0 - self.rate))


def _count(length: Tensor, start):
    return ops.arange(length, dtype="int32") + ops.cast(start, "int32")


def _mix(x: Tensor):
    """Hashes 32-bit integers; products wrap around.

    Reference: Wellons, hash-prospector, the constants of `lowbias32`.
    """
    x = ops.bitwise_xor(x, _shift_right(x, 16)) * 0x7FEB352D
    x = ops.bitwise_xor(x, _shift_right(x, 15)) * (0x846CA68B - 2**32)
    return ops.bitwise_xor(x, _shift_right(x, 16))


def _shift_right(x: Tensor, columns: Tensor):
    """A logical shift to the right."""
    return ops.bitwise_and(ops.right_shift(x, columns), (1 << (32 - columns)) - 1)
