"""Pool of the fixed-size states of many sequences."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from keras import ops

from keras_transformer.attention.cache.layout import split_cache
from keras_transformer.utils.types import Cache, Shape, Tensor

# The row for padding. It belongs to no sequence.
SCRATCH_STATE = 0


@dataclasses.dataclass(frozen=True)
class StatePool:
    """Pool for the tensors of a cache that do not grow with the sequence: recurrent states, windows, memories.

    Each sequence has one row of the pool. Models need no change: `read` gathers the rows of a batch into the cache that
    every layer takes, and `write` scatters them back. A sequence without tokens starts from zeros, regardless of the
    content of its row.

    Args:
        states: dict from the name of each tensor of the cache to `(shape of a row, dtype)`.
        num_states: int >= 2. Row 0 is for padding.

    Example:

    >>> import numpy as np
    >>> pooled = StatePool({"state": ((2,), "float32")}, num_states=4)
    >>> pools = pooled.write(pooled.init_pools(), {"state": np.array([[1.0, 2.0]])}, np.array([3]))
    >>> np.array(pooled.read(pools, np.array([3, 3]), cache_index=np.array([5, 0]))["state"]).tolist()
    [[1.0, 2.0], [0.0, 0.0]]
    """

    states: dict[str, tuple[Shape, str]]
    num_states: int

    @classmethod
    def from_cache(cls, init_cache: Callable[[int, int], Cache], num_states: int) -> StatePool:
        """Creates the pool for a model's cache. Tensors that keep all tokens belong to `PagedCache`.

        Args:
            init_cache: function of batch size and max length, as `Stepwise.init_cache`.
            num_states: see the class.

        Raises:
            ValueError: a tensor neither keeps all tokens nor has a fixed size.
        """
        return cls(split_cache(init_cache)[1], num_states)

    def init_pools(self) -> Cache:
        """Returns pools of zeros: dict of `(num_states, ...)`."""
        return {name: ops.zeros((self.num_states, *shape), dtype) for name, (shape, dtype) in self.states.items()}

    def read(self, pools: Cache, rows: Tensor, cache_index: Tensor, take: Callable[..., Tensor] | None = None) -> Cache:
        """Returns the cache of a batch.

        Args:
            pools: as `init_pools` returns.
            rows: int32 `(B,)`: the row of each sequence.
            cache_index: int32 `(B,)`: how many tokens each sequence has read.
            take: function of a pool and of indices into its first axis. Defaults to `keras.ops.take`.

        Returns:
            dict of `(B, ...)`.
        """
        take = take or _take
        return {name: _zero_if_unread(take(pools[name], rows), cache_index) for name in self.states}

    def write(self, pools: Cache, cache: Cache, rows: Tensor, put: Callable[..., Tensor] | None = None) -> Cache:
        """Returns pools that contain the states of a batch.

        Args:
            pools: as `init_pools` returns.
            cache: as `read` returns, after the new tokens.
            rows: int32 `(B,)`.
            put: function of a pool, indices `(n, 1)` and values `(n, ...)`. Defaults to `keras.ops.scatter_update`.

        Returns:
            The next pools.
        """
        scatter, indices = put or ops.scatter_update, ops.expand_dims(rows, 1)
        new = {
            name: scatter(pools[name], indices, ops.cast(cache[name], dtype))
            for name, (_, dtype) in self.states.items()
        }
        return {**pools, **new}

    def copy(
        self,
        pools: Cache,
        sources: Tensor,
        targets: Tensor,
        take: Callable[..., Tensor] | None = None,
        put: Callable[..., Tensor] | None = None,
    ) -> Cache:
        """Returns pools with rows `sources` copied to `targets`, int32 `(n,)` each. For copy-on-write."""
        take = take or _take
        return self.write(pools, {name: take(pools[name], sources) for name in self.states}, targets, put)


def _take(pool, rows):
    return ops.take(pool, rows, axis=0)


def _zero_if_unread(tensor, cache_index):
    """Returns zeros for sequences without tokens: every state starts as zeros, so a reused row needs no reset."""
    shape = (-1, *[1] * (len(tensor.shape) - 1))
    return ops.where(ops.reshape(cache_index, shape) > 0, tensor, ops.zeros((), tensor.dtype))
