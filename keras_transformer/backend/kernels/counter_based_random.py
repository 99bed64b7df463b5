"""Random numbers that are a hash of a seed and an index: the same in any order, and for tiles of a tensor alone."""

from __future__ import annotations

import math
from collections.abc import Sequence

from keras import ops

from keras_transformer.utils.types import Tensor


def random_integers(shape: Sequence[int | Tensor], seed: Tensor) -> Tensor:
    """Returns integers of 31 bits, each a hash of the seed and its index. XLA computes them within what uses them.

    Args:
        shape: sizes, ints or int32 tensors `()`.
        seed: integers `(2,)`, one pair for each draw.

    Returns:
        int32, uniform in [0, 2^31).

    Example:

    >>> import numpy as np
    >>> drawn = np.asarray(random_integers((200, 1000), np.array([1, 2], "int32"))) / 2**31
    >>> round(float(drawn.mean()), 2), round(float(drawn.std()), 2)  # Of a uniform number: 1/2 and 1/sqrt(12).
    (0.5, 0.29)

    Reference: Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", 2011. Deviation: the hash is `lowbias32`, which
    has two products; their Philox has twenty.
    """
    *front, last = shape
    seed = ops.cast(seed, "int32")
    rows = mix(mix(count(math.prod(front), 0) + seed[0]) + seed[1])
    columns = mix(count(last, 0) + 1)
    return ops.reshape(positive(mix(ops.bitwise_xor(rows[:, None], columns))), shape)


def count(length: int | Tensor, start: int | Tensor) -> Tensor:
    """Returns `length` int32 from `start`."""
    return ops.arange(length, dtype="int32") + ops.cast(start, "int32")


def positive(x: Tensor) -> Tensor:
    """Returns int32 without their signs' bits."""
    return ops.bitwise_and(x, 0x7FFFFFFF)


def mix(x: Tensor) -> Tensor:
    """Hashes int32; products wrap around.

    Reference: Wellons, hash-prospector, the constants of `lowbias32`.
    """
    x = ops.bitwise_xor(x, _shift_right(x, 16)) * 0x7FEB352D
    x = ops.bitwise_xor(x, _shift_right(x, 15)) * (0x846CA68B - 2**32)
    return ops.bitwise_xor(x, _shift_right(x, 16))


def _shift_right(x: Tensor, columns: int):
    """A logical shift to the right."""
    return ops.bitwise_and(ops.right_shift(x, columns), (1 << (32 - columns)) - 1)
