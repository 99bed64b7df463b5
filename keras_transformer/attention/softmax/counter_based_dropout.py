"""Counter-based dropout, reproducible tile by tile: the random number of a weight is a hash of its index."""

from __future__ import annotations

import dataclasses

from keras import ops

from keras_transformer.backend.kernels.counter_based_random import count, mix, positive
from keras_transformer.utils.types import Tensor


@dataclasses.dataclass(frozen=True)
class CounterBasedDropout:
    """Dropout factors of a tile: 0 for dropped weights, `1 / (1 - rate)` for others, equal in every call.

    Attributes:
        rate: float in (0, 1).
        seed: integers `(2,)`, one pair for each step of training.
    """

    rate: float
    seed: Tensor

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
        rows = mix(count(batch * heads, 0) + seed[0]) + seed[1]
        rows = ops.reshape(rows, (-1, heads, 1, 1))
        rows = mix(rows + ops.reshape(count(length, i * sizes[0]), (1, 1, -1, 1)))
        columns = ops.reshape(mix(count(key_length, j * sizes[1]) + 1), (1, 1, 1, -1))
        drawn = positive(mix(ops.bitwise_xor(rows, columns)))
        kept = ops.greater_equal(drawn, int(self.rate * 2**31))
        return ops.cast(kept, "float32") * (1.0 / (1.0 - self.rate))
