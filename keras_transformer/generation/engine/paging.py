"""Block allocation for a paged cache: reference counts, prefix caching and copy on write.

It handles block indices only, not arrays.
"""

from __future__ import annotations

import collections
import hashlib
from collections.abc import Sequence

import numpy as np

from keras_transformer.generation.errors import GenerationError


class OutOfBlocksError(GenerationError):
    """Too few blocks are free. Nothing has been allocated."""


class BlockPool:
    """The allocator of cache blocks, with reference counts and a prefix cache.

    Block 0 is reserved for padding. A block without references is free, but stays in the prefix cache with its contents
    until it is allocated again, in least recently used order.

    Args:
        num_blocks: int >= 2. Number of blocks, including block 0.
        block_size: int >= 1. Slots of a block.

    Raises:
        ValueError: sizes out of range.

    Example:

    >>> pool = BlockPool(num_blocks=4, block_size=2)
    >>> pool.allocate(), pool.allocate(), pool.num_free
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
        # In allocation order.
        self._free = collections.OrderedDict.fromkeys(range(1, num_blocks))
        self._digests: dict[int, bytes] = {}
        self._prefix_cache: dict[bytes, int] = {}

    @property
    def num_free(self) -> int:
        """int: number of free blocks."""
        return len(self._free)

    @property
    def num_used(self) -> int:
        """int: number of blocks with references; a shared block counts once."""
        return self.num_blocks - 1 - len(self._free)

    def references(self, block: int) -> int:
        """Returns the reference count of a block."""
        return self._references[block]

    def blocks_for(self, num_tokens: int) -> int:
        """Returns the number of blocks for `num_tokens` tokens."""
        return -(-num_tokens // self.block_size)

    def allocate(self) -> int:
        """Allocates a free block and returns its index.

        Raises:
            OutOfBlocksError: no block is free.
        """
        if not self._free:
            raise OutOfBlocksError(f"All {self.num_blocks - 1} blocks are in use.")
        block, _ = self._free.popitem(last=False)
        self._evict(block)
        self._references[block] = 1
        return block

    def share(self, block: int) -> None:
        """Adds a reference to a block, which may be free."""
        self._free.pop(block, None)
        self._references[block] += 1

    def release(self, block: int) -> None:
        """Removes a reference from a block, which becomes free with the last one."""
        if self._references[block] < 1:
            raise ValueError(f"Block {block} has no references.")
        self._references[block] -= 1
        if self._references[block] == 0:
            self._free[block] = None
            # Blocks outside the prefix cache are allocated before those inside.
            self._free.move_to_end(block, last=block in self._digests)

    def register(self, block: int, digest: bytes) -> None:
        """Adds a full block to the prefix cache; of blocks with equal digests the first stays."""
        if digest not in self._prefix_cache:
            self._prefix_cache[digest], self._digests[block] = block, digest

    def find(self, digest: bytes) -> int | None:
        """Returns the block of a digest in the prefix cache, or None."""
        return self._prefix_cache.get(digest)

    def reset_prefix_cache(self) -> None:
        """Removes all blocks from the prefix cache."""
        self._digests.clear()
        self._prefix_cache.clear()

    def _evict(self, block: int) -> None:
        digest = self._digests.pop(block, None)
        if digest is not None:
            del self._prefix_cache[digest]


class BlockTable:
    """The block table of one sequence.

    Args:
        pool: `BlockPool`.

    Attributes:
        blocks: list of int. Block indices in token order.
        length: int. Number of tokens written.

    Example:

    >>> pool = BlockPool(num_blocks=8, block_size=2)
    >>> first = BlockTable(pool)
    >>> first.reserve(3), first.blocks
    ([], [1, 2])
    >>> first.extend([5, 6, 7])
    >>> second = BlockTable(pool)
    >>> second.reuse_prefix([5, 6, 7, 8]), second.blocks  # The first block has the same tokens and the same prefix.
    (2, [1])
    >>> fork = first.fork()
    >>> fork.reserve(1), fork.blocks  # The second block is not full, so it is copied on write.
    ([(2, 3)], [1, 3])

    Reference: Kwon et al., arXiv 2309.06180, sections 4.2 to 4.4.
    """

    def __init__(self, pool: BlockPool) -> None:
        self.pool = pool
        self.blocks: list[int] = []
        self.length = 0
        self._digest = b""
        self._tail: list[int] = []

    def reuse_prefix(self, tokens: list[int]) -> int:
        """Shares the full blocks of the longest cached prefix, excluding the last token, which must be read.

        Args:
            tokens: list of int. All tokens of the sequence, whose table is empty.

        Returns:
            int: number of tokens found in the prefix cache.
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
        """Allocates blocks, not shared with other sequences, for `count` more tokens.

        Returns:
            List of pairs of source and target blocks to copy before the tokens are written.

        Raises:
            OutOfBlocksError: too few blocks are free; nothing has changed.
        """
        shared, missing = self.required_blocks(count)
        copies = []
        for index in shared:
            block = self.blocks[index]
            self.blocks[index] = self.pool.allocate()
            self.pool.release(block)
            if index * self.pool.block_size < self.length:
                copies.append((block, self.blocks[index]))
        self.blocks += [self.pool.allocate() for _ in range(missing)]
        return copies

    def required_blocks(self, count: int) -> tuple[list[int], int]:
        """Returns the table indices of shared blocks to copy, and the number of new blocks, for `count` more tokens.

        Raises:
            OutOfBlocksError: too few blocks are free.
        """
        first = self.length // self.pool.block_size
        shared = [index for index in range(first, len(self.blocks)) if self.pool.references(self.blocks[index]) > 1]
        missing = self.num_missing(self.length + count)
        if len(shared) + missing > self.pool.num_free:
            raise OutOfBlocksError(f"{len(shared) + missing} blocks are required, {self.pool.num_free} are free.")
        return shared, missing

    def num_missing(self, length: int) -> int:
        """Returns the number of further blocks that the sequence needs for `length` tokens."""
        return max(self.pool.blocks_for(length) - len(self.blocks), 0)

    def extend(self, tokens: Sequence[int]) -> None:
        """Records that these tokens have been written, and adds the blocks that they fill to the prefix cache."""
        size = self.pool.block_size
        self._tail += map(int, tokens)
        self.length += len(tokens)
        while len(self._tail) >= size:
            full, self._tail = self._tail[:size], self._tail[size:]
            self._digest = _digest(self._digest, full)
            self.pool.register(self.blocks[(self.length - len(self._tail)) // size - 1], self._digest)

    def fork(self) -> BlockTable:
        """Returns a table of a sequence with the same tokens, which shares all blocks until one is written."""
        other = BlockTable(self.pool)
        other.blocks, other.length = list(self.blocks), self.length
        other._digest, other._tail = self._digest, list(self._tail)
        for block in self.blocks:
            self.pool.share(block)
        return other

    def release(self) -> None:
        """Releases all blocks; the table is empty afterwards."""
        for block in reversed(self.blocks):  # The end first, as it is of no use to the prefix cache without the start.
            self.pool.release(block)
        self.blocks, self.length, self._digest, self._tail = [], 0, b"", []


def _digest(before: bytes, tokens: Sequence[int]) -> bytes:
    """Returns the SHA-256 hash of the tokens of a block and of the digest of its prefix."""
    return hashlib.sha256(before + np.asarray(tokens, "<i8").tobytes()).digest()
