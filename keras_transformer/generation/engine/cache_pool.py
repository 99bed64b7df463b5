"""All that the cache of an engine has to give, and what one sequence has of it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from keras_transformer.generation.engine.paging import BlockPool, BlockTable

# A state takes any number of tokens: a block without an end. So it is counted, forked and copied on write as blocks are.
_ENDLESS = sys.maxsize


class CachePool:
    """Blocks for the slots of tokens, and states of fixed size; a model may need either, or both.

    Args:
        num_blocks: int >= 1, or 0 where the model keeps no slots.
        block_size: int >= 1.
        num_states: int >= 1, or 0 where the model keeps no states.

    Attributes:
        blocks, states: `BlockPool`, or None. Number 0 of each is never given: it is for padding.

    Example:

    >>> pool = CachePool(num_blocks=4, block_size=2, num_states=3)
    >>> first = CacheTable(pool)
    >>> first.reserve(3), first.blocks, first.state
    (([], []), [1, 2], 1)
    >>> first.extend([5, 6, 7])
    >>> fork = first.fork()
    >>> fork.reserve(1), fork.blocks, fork.state  # What it shares, it copies before it writes.
    (([(2, 3)], [(1, 2)]), [1, 3], 2)
    """

    def __init__(self, num_blocks: int, block_size: int, num_states: int = 0) -> None:
        self.blocks = BlockPool(num_blocks + 1, block_size) if num_blocks else None
        self.states = BlockPool(num_states + 1, _ENDLESS) if num_states else None

    @property
    def parts(self) -> list[BlockPool]:
        """list of `BlockPool`: those there are."""
        return [part for part in (self.blocks, self.states) if part is not None]

    def has_room(self, tables: Any, lengths: Any) -> bool:
        """Whether all these sequences can grow to these lengths, together."""
        return all(
            sum(table.missing(part, length) for table, length in zip(tables, lengths, strict=True)) <= part.num_free
            for part in self.parts
        )

    def forget_all(self) -> None:
        """Makes nothing findable: what it holds is lost."""
        for part in self.parts:
            part.forget_all()


class CacheTable:
    """What one sequence has of the cache: the blocks of its tokens, and its state.

    Args:
        pool: `CachePool`.
    """

    def __init__(self, pool: CachePool) -> None:
        self.pool = pool
        self._tables = {part: BlockTable(part) for part in pool.parts}

    @property
    def length(self) -> int:
        """int: how many tokens have been read."""
        return next(iter(self._tables.values())).length

    @property
    def blocks(self) -> list[int]:
        """list of int, in the order of the tokens; empty where the model keeps no slots."""
        return self._tables[self.pool.blocks].blocks if self.pool.blocks else []

    @property
    def state(self) -> int:
        """int; 0 where there is none yet, or the model keeps none."""
        return next(iter(self._tables[self.pool.states].blocks), 0) if self.pool.states else 0

    def missing(self, part: BlockPool, length: int) -> int:
        """How many blocks of a `BlockPool` are lacking for so many tokens in all."""
        return self._tables[part].missing(length)

    def adopt(self, tokens: list[int]) -> int:
        """Takes over blocks that hold the beginning of these tokens, as `BlockTable.adopt`; nothing where there are states.

        The state after a beginning is gone as soon as more has been read.
        """
        return 0 if self.pool.states or not self.pool.blocks else self._tables[self.pool.blocks].adopt(tokens)

    def reserve(self, count: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """Makes room for so many more tokens, in blocks and a state that nobody else holds.

        Returns:
            Two lists of pairs, of blocks and of states: what the first holds must be copied to the second.

        Raises:
            OutOfBlocksError: there is too little; nothing has changed.
        """
        for table in self._tables.values():
            table.wanted(count)  # Raises before anything is taken.
        copies: dict[BlockPool | None, list[tuple[int, int]]] = {None: []}
        copies |= {part: table.reserve(count) for part, table in self._tables.items()}
        return copies[self.pool.blocks], copies[self.pool.states]

    def extend(self, tokens: Sequence[int]) -> None:
        """Notes that these tokens have been read."""
        for table in self._tables.values():
            table.extend(tokens)

    def fork(self) -> CacheTable:
        """Another sequence that has read the same: it shares all, until one of the two reads on."""
        other = CacheTable(self.pool)
        other._tables = {part: table.fork() for part, table in self._tables.items()}
        return other

    def release(self) -> None:
        """Gives all back; the table is empty again."""
        for table in self._tables.values():
            table.release()
