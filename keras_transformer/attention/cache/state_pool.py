"""States of fixed size of many sequences, in the rows of one pool."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

from keras import ops

from keras_transformer.attention.cache.paged import bits, split_cache
from keras_transformer.utils.types import Cache, Tensor

# Of padding: a state that belongs to nobody.
SCRATCH_STATE = 0


@dataclasses.dataclass(frozen=True)
class PooledStates:
    """The part of a cache whose size does not grow with the sequence: recurrent states, windows, memories.

    A sequence has one row of the pool. A model knows nothing of it: `read` gathers the rows of a batch into the cache that
    every layer takes, `write` puts them back. A sequence of which nothing has been read starts from zeros, whatever its row
    held before.

    Args:
        states: dict of the name of each tensor of the cache to `(shape of a row, dtype)`.
        num_states: int >= 2. Row 0 is for padding.

    Example:

    >>> import numpy as np
    >>> pooled = PooledStates({"state": ((2,), "float32")}, num_states=4)
    >>> pools = pooled.write(pooled.init_pools(), {"state": np.array([[1.0, 2.0]])}, np.array([3]))
    >>> np.array(pooled.read(pools, np.array([3, 3]), cache_index=np.array([5, 0]))["state"]).tolist()
    [[1.0, 2.0], [0.0, 0.0]]
    """

    states: dict
    num_states: int

    @classmethod
    def from_cache(cls, init_cache: Callable[[int, int], Cache], num_states: int) -> PooledStates:
        """The states of a model's cache; what keeps all tokens is left to `PagedCache`.

        Args:
            init_cache: function of batch size and max length, as `Stepwise.init_cache`.
            num_states: see the class.

        Raises:
            ValueError: a tensor that neither keeps all tokens nor has one size.
        """
        return cls(split_cache(init_cache)[1], num_states)

    def init_pools(self) -> Cache:
        """Pools of zeros: dict of `(num_states, ...)`."""
        return {name: ops.zeros((self.num_states, *shape), dtype) for name, (shape, dtype) in self.states.items()}

    def read(self, pools: Cache, rows: Tensor, cache_index: Tensor, take: Callable[..., Tensor] | None = None) -> Cache:
        """The cache of a batch.

        Args:
            pools: as `init_pools` returns.
            rows: int32 `(B,)`: the row of each sequence.
            cache_index: int32 `(B,)`: how many tokens each has read.
            take: function of a pool and of indices into its first axis; `keras.ops.take` by default.

        Returns:
            dict of `(B, ...)`.
        """
        take = take or _take
        return {name: _begun(take(pools[name], rows), cache_index) for name in self.states}

    def write(self, pools: Cache, cache: Cache, rows: Tensor, put: Callable[..., Tensor] | None = None) -> Cache:
        """Pools with the states of a batch.

        Args:
            pools: as `init_pools` returns.
            cache: as `read` returns, after the new tokens.
            rows: int32 `(B,)`.
            put: function of a pool, of indices `(n, 1)` and of `(n, ...)`; `keras.ops.scatter_update` by default.

        Returns:
            The next pools.
        """
        put, places = put or ops.scatter_update, ops.expand_dims(rows, 1)
        new = {name: put(pools[name], places, ops.cast(cache[name], dtype)) for name, (_, dtype) in self.states.items()}
        return {**pools, **new}

    def copy(
        self,
        pools: Cache,
        sources: Tensor,
        targets: Tensor,
        take: Callable[..., Tensor] | None = None,
        put: Callable[..., Tensor] | None = None,
    ) -> Cache:
        """Pools in which rows `targets` hold what rows `sources` hold; int32 `(n,)` each. For copy on write."""
        take = take or _take
        return self.write(pools, {name: take(pools[name], sources) for name in self.states}, targets, put)

    @property
    def state_bytes(self) -> int:
        """int: the memory that one sequence takes, whatever its length."""
        return sum(math.prod(shape) * bits(dtype) // 8 for shape, dtype in self.states.values())


def _take(pool, rows):
    return ops.take(pool, rows, axis=0)


def _begun(tensor, cache_index):
    """Zeros where nothing has been read: states begin so, and it is as good as emptying each row when it is given."""
    shape = (-1, *[1] * (len(tensor.shape) - 1))
    return ops.where(ops.reshape(cache_index, shape) > 0, tensor, ops.zeros((), tensor.dtype))
