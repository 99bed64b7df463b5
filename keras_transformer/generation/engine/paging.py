"""Which blocks of a paged cache belong to whom: counted, shared, copied on write. Numbers alone; no array is touched."""

from __future__ import annotations

import collections
import hashlib
from collections.abc import Sequence

import numpy as np

from keras_transformer.generation.errors import GenerationError


class OutOfBlocksError(GenerationError):
    """A pool without the blocks that are asked for; nothing has been taken."""


class BlockPool:
    """Counts who holds which block.

    Block 0 is never given: padding is written there. A block that nobody holds is free, but keeps what it holds, and the
    digest by which it is found, until it is given anew; the one that has been free longest is given first.

    Args:
        num_blocks: int >= 2. Block 0 included.
        block_size: int >= 1. Slots of a block.

    Raises:
        ValueError: sizes out of range.

    Example:

    >>> pool = BlockPool(num_blocks=4, block_size=2)
    >>> pool.take(), pool.take(), pool.num_free
    (1, 2, 1)
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        if num_blocks < 2 or block_size < 1:
            raise ValueError(
                f"num_blocks must be at least 2 and block_size at least 1. Received: {num_blocks}, {block_size}"
            )
        self.num_blocks = num_blocks
        self.block_size = block_size
        self._references = [0] * num_blocks
        # Ordered: the first is given first.
        self._free = collections.OrderedDict.fromkeys(range(1, num_blocks))
        self._digests: dict[int, bytes] = {}
        self._found: dict[bytes, int] = {}

    @property
    def num_free(self) -> int:
        """int: blocks that nobody holds."""
        return len(self._free)

    @property
    def num_used(self) -> int:
        """int: blocks that somebody holds, each counted once."""
        return self.num_blocks - 1 - len(self._free)

    def references(self, block: int) -> int:
        """How many hold the block."""
        return self._references[block]

    def blocks_for(self, num_tokens: int) -> int:
        """How many blocks so many tokens take."""
        return -(-num_tokens // self.block_size)

    def take(self) -> int:
        """A block of one's own.

        Raises:
            OutOfBlocksError: all are held.
        """
        if not self._free:
            raise OutOfBlocksError(f"All {self.num_blocks - 1} blocks are in use.")
        block, _ = self._free.popitem(last=False)
        self._forget(block)
        self._references[block] = 1
        return block

    def share(self, block: int) -> None:
        """Holds a block once more, or again."""
        self._free.pop(block, None)
        self._references[block] += 1

    def release(self, block: int) -> None:
        """Holds a block once less."""
        if self._references[block] < 1:
            raise ValueError(f"Block {block} is held by nobody.")
        self._references[block] -= 1
        if self._references[block] == 0:
            self._free[block] = None
            # What nobody can find again goes before what may be asked for again.
            self._free.move_to_end(block, last=block in self._digests)

    def publish(self, block: int, digest: bytes) -> None:
        """Makes a full block findable; the first of equal ones is found."""
        if digest not in self._found:
            self._found[digest], self._digests[block] = block, digest

    def find(self, digest: bytes) -> int | None:
        """The block of a digest, or None."""
        return self._found.get(digest)

    def forget_all(self) -> None:
        """Makes no block findable: their contents are lost."""
        self._digests.clear()
        self._found.clear()

    def _forget(self, block: int) -> None:
        digest = self._digests.pop(block, None)
        if digest is not None:
            del self._found[digest]


class BlockTable:
    """The blocks of one sequence, in the order of its tokens.

    Args:
        pool: `BlockPool`.

    Attributes:
        blocks: list of int.
        length: int: how many tokens are written.

    Example:

    >>> pool = BlockPool(num_blocks=8, block_size=2)
    >>> first = BlockTable(pool)
    >>> first.reserve(3), first.blocks
    ([], [1, 2])
    >>> first.extend([5, 6, 7])
    >>> second = BlockTable(pool)
    >>> second.adopt([5, 6, 7, 8]), second.blocks  # The first block holds the same tokens after the same ones.
    (2, [1])
    >>> fork = first.fork()
    >>> fork.reserve(1), fork.blocks  # The second is not full: it is copied before it is written.
    ([(2, 3)], [1, 3])

    Reference: Kwon et al., arXiv 2309.06180, sections 4.2 to 4.4.
    """

    def __init__(self, pool: BlockPool) -> None:
        self.pool = pool
        self.blocks: list[int] = []
        self.length = 0
        self._digest = b""
        self._tail: list[int] = []

    def adopt(self, tokens: list[int]) -> int:
        """Takes over full blocks that hold the beginning of these tokens; the last token is left to be read.

        Args:
            tokens: list of int. What the sequence, yet empty, will read.

        Returns:
            int: how many tokens need not be read.
        """
        size = self.pool.block_size
        for start in range(0, len(tokens) - size, size):
            digest = _digest(self._digest, tokens[start : start + size])
            block = self.pool.find(digest)
            if block is None:
                break
            self.pool.share(block)
            self.blocks.append(block)
            self._digest = digest
            self.length += size
        return self.length

    def reserve(self, count: int) -> list[tuple[int, int]]:
        """Makes room for so many more tokens, in blocks that nobody else holds.

        Returns:
            List of pairs of blocks: what the first holds must be copied to the second before it is written.

        Raises:
            OutOfBlocksError: the pool has too few; nothing has changed.
        """
        shared, missing = self.wanted(count)
        copies = []
        for place in shared:
            block = self.blocks[place]
            self.blocks[place] = self.pool.take()
            self.pool.release(block)
            if place * self.pool.block_size < self.length:
                copies.append((block, self.blocks[place]))
        self.blocks += [self.pool.take() for _ in range(missing)]
        return copies

    def wanted(self, count: int) -> tuple[list[int], int]:
        """What so many more tokens take: the places whose blocks others hold too, and how many blocks are lacking.

        Raises:
            OutOfBlocksError: the pool has too few.
        """
        first = self.length // self.pool.block_size
        shared = [place for place in range(first, len(self.blocks)) if self.pool.references(self.blocks[place]) > 1]
        missing = self.missing(self.length + count)
        if len(shared) + missing > self.pool.num_free:
            raise OutOfBlocksError(f"{len(shared) + missing} blocks are wanted, {self.pool.num_free} are free.")
        return shared, missing

    def missing(self, length: int) -> int:
        """How many blocks are lacking for so many tokens in all."""
        return max(self.pool.blocks_for(length) - len(self.blocks), 0)

    def extend(self, tokens: Sequence[int]) -> None:
        """Notes that these tokens have been written, and publishes the blocks that they fill."""
        size = self.pool.block_size
        self._tail += map(int, tokens)
        self.length += len(tokens)
        while len(self._tail) >= size:
            full, self._tail = self._tail[:size], self._tail[size:]
            self._digest = _digest(self._digest, full)
            self.pool.publish(self.blocks[(self.length - len(self._tail)) // size - 1], self._digest)

    def fork(self) -> BlockTable:
        """Another sequence that has read the same: it shares all blocks until one of the two writes."""
        other = BlockTable(self.pool)
        other.blocks, other.length = list(self.blocks), self.length
        other._digest, other._tail = self._digest, list(self._tail)
        for block in self.blocks:
            self.pool.share(block)
        return other

    def release(self) -> None:
        """Gives all blocks back; the table is empty again."""
        for block in reversed(self.blocks):  # The end first: it is of no use without the beginning.
            self.pool.release(block)
        self.blocks, self.length, self._digest, self._tail = [], 0, b"", []


def _digest(before: bytes, tokens: Sequence[int]) -> bytes:
    """Of a block's tokens and all before them: 256 bits, so that no two are ever taken for one."""
    return hashlib.sha256(before + np.asarray(tokens, "<i8").tobytes()).digest()
