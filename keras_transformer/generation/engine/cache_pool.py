"""The paged cache of an engine: blocks and states, and the share of each sequence."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from keras_transformer.generation.engine.paging import BlockPool, BlockTable
from keras_transformer.utils.types import ArrayLike

# A state holds any number of tokens. It is managed as a block of unlimited size: counted, forked and copied on write.
_UNLIMITED = sys.maxsize


class CachePool:
    """The blocks for token slots and the states of fixed size of an engine. A model needs one kind or both.

    Args:
        num_blocks: int >= 1, or 0 for a model without slots.
        block_size: int >= 1. Slots of a block.
        num_states: int >= 1, or 0 for a model without states.

    Attributes:
        blocks, states: `BlockPool` or None. Index 0 of each is reserved for padding.

    Example:

    >>> pool = CachePool(num_blocks=4, block_size=2, num_states=3)
    >>> first = CacheTable(pool)
    >>> first.reserve(3), first.blocks, first.state
    (([], []), [1, 2], 1)
    >>> first.extend([5, 6, 7])
    >>> fork = first.fork()
    >>> fork.reserve(1), fork.blocks, fork.state  # Shared blocks and states are copied on write.
    (([(2, 3)], [(1, 2)]), [1, 3], 2)
    """

    def __init__(self, num_blocks: int, block_size: int, num_states: int = 0) -> None:
        self.blocks = BlockPool(num_blocks + 1, block_size) if num_blocks else None
        self.states = BlockPool(num_states + 1, _UNLIMITED) if num_states else None

    @property
    def pools(self) -> list[BlockPool]:
        """list of `BlockPool`: `blocks` and `states`, without None."""
        return [pool for pool in (self.blocks, self.states) if pool is not None]

    def has_room(self, tables: Sequence[CacheTable], lengths: ArrayLike) -> bool:
        """Returns whether all of these sequences can grow to the given lengths together."""
        return all(
            sum(table.num_missing(pool, length) for table, length in zip(tables, lengths, strict=True)) <= pool.num_free
            for pool in self.pools
        )

    def reset_prefix_cache(self) -> None:
        """Removes all blocks and states from the prefix cache."""
        for pool in self.pools:
            pool.reset_prefix_cache()


class CacheTable:
    """The cache of one sequence: its block table and its state.

    Args:
        pool: `CachePool`.
    """

    def __init__(self, pool: CachePool) -> None:
        self.pool = pool
        self._tables = {part: BlockTable(part) for part in pool.pools}

    @property
    def length(self) -> int:
        """int: number of tokens in the cache."""
        return next(iter(self._tables.values())).length

    @property
    def blocks(self) -> list[int]:
        """list of int: block indices in token order; empty for a model without slots."""
        return self._tables[self.pool.blocks].blocks if self.pool.blocks else []

    @property
    def state(self) -> int:
        """int: index of the state; 0 if none is allocated, or for a model without states."""
        return next(iter(self._tables[self.pool.states].blocks), 0) if self.pool.states else 0

    def num_missing(self, pool: BlockPool, length: int) -> int:
        """Returns the number of further blocks of a `BlockPool` that the sequence needs for `length` tokens."""
        return self._tables[pool].num_missing(length)

    def reuse_prefix(self, tokens: list[int]) -> int:
        """Shares the cached blocks of a prefix, as `BlockTable.reuse_prefix`; none for a model with states.

        The state after a prefix is overwritten as soon as a further token is read.
        """
        return 0 if self.pool.states or not self.pool.blocks else self._tables[self.pool.blocks].reuse_prefix(tokens)

    def reserve(self, count: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """Allocates blocks and a state, not shared with other sequences, for `count` more tokens.

        Returns:
            `(blocks, states)`: lists of pairs of source and target to copy before the tokens are written.

        Raises:
            OutOfBlocksError: too few blocks or states are free; nothing has changed.
        """
        for table in self._tables.values():
            table.required_blocks(count)  # Raises before anything is allocated.
        copies: dict[BlockPool | None, list[tuple[int, int]]] = {None: []}
        copies |= {pool: table.reserve(count) for pool, table in self._tables.items()}
        return copies[self.pool.blocks], copies[self.pool.states]

    def extend(self, tokens: Sequence[int]) -> None:
        """Records that these tokens have been written to the cache."""
        for table in self._tables.values():
            table.extend(tokens)

    def fork(self) -> CacheTable:
        """Returns a table of a sequence with the same tokens, which shares all blocks and the state until one is written."""
        other = CacheTable(self.pool)
        other._tables = {pool: table.fork() for pool, table in self._tables.items()}
        return other

    def release(self) -> None:
        """Releases all blocks and the state; the table is empty afterwards."""
        for table in self._tables.values():
            table.release()
