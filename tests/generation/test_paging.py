"""Cache blocks: allocation, prefix sharing, copy on write, release."""

import pytest

from keras_transformer.generation.engine.cache_pool import CachePool, CacheTable
from keras_transformer.generation.engine.paging import BlockPool, BlockTable, OutOfBlocksError


def table_of(pool, tokens):
    """Returns the table of a sequence after these tokens."""
    table = BlockTable(pool)
    table.reuse_prefix([*tokens, 0])
    rest = tokens[table.length :]
    assert table.reserve(len(rest)) == []
    table.extend(rest)
    return table


def test_blocks_are_taken_as_tokens_come():
    pool = BlockPool(num_blocks=4, block_size=2)
    table = BlockTable(pool)
    lengths = []
    for token in range(5):
        assert table.reserve(1) == []
        table.extend([token])
        lengths.append(len(table.blocks))
    assert lengths == [1, 1, 2, 2, 3]
    assert sorted(table.blocks) == [1, 2, 3]  # Block 0 is for padding.
    assert (pool.num_free, pool.num_used) == (0, 3)
    assert table.reserve(1) == []  # The sixth fits in the third block.
    with pytest.raises(OutOfBlocksError, match="1 blocks are required, 0 are free"):
        table.reserve(2)
    assert (table.length, table.blocks, pool.num_free) == (5, [1, 2, 3], 0)
    table.release()
    assert (table.length, table.blocks, pool.num_free) == (0, [], 3)


def test_equal_beginnings_share_full_blocks():
    pool = BlockPool(num_blocks=10, block_size=3)
    first = table_of(pool, [1, 2, 3, 4, 5, 6, 7])
    assert first.blocks == [1, 2, 3]
    second = BlockTable(pool)
    assert second.reuse_prefix([1, 2, 3, 4, 5, 6, 7, 8]) == 6
    assert second.blocks == [1, 2]
    assert [pool.references(block) for block in (1, 2, 3)] == [2, 2, 1]
    other = BlockTable(pool)
    # The second block holds 4 5 6 too, but after other tokens.
    assert (other.reuse_prefix([1, 2, 9, 4, 5, 6, 7]), other.blocks) == (0, [])
    # The last token must be processed for the next one, so its block is not shared.
    short = BlockTable(pool)
    assert (short.reuse_prefix([1, 2, 3, 4, 5, 6]), short.blocks) == (3, [1])
    second.extend([])
    assert second.reserve(2) == []
    second.extend([7, 8])
    assert second.blocks == [1, 2, 4]
    assert pool.num_used == 4  # Counted once.


def test_what_is_free_is_found_again_until_it_is_given_away():
    pool = BlockPool(num_blocks=4, block_size=2)
    first = table_of(pool, [1, 2, 3, 4, 5])
    first.release()
    assert pool.num_free == 3
    again = BlockTable(pool)
    assert (again.reuse_prefix([1, 2, 3, 4, 6]), again.blocks, pool.num_free) == (4, [1, 2], 1)
    again.release()
    # Evicted first: blocks without a hash (3), then the end of the text (2), then its start (1).
    assert [pool.allocate() for _ in range(3)] == [3, 2, 1]
    for block in (3, 2, 1):
        pool.release(block)
    assert BlockTable(pool).reuse_prefix([1, 2, 3, 4, 6]) == 0


def test_reset_prefix_cache_removes_all_blocks():
    pool = BlockPool(num_blocks=4, block_size=2)
    table_of(pool, [1, 2, 3]).release()
    pool.reset_prefix_cache()
    assert BlockTable(pool).reuse_prefix([1, 2, 3]) == 0


@pytest.mark.parametrize("writer", ["original", "fork"])
def test_a_shared_block_is_copied_before_it_is_written(writer):
    pool = BlockPool(num_blocks=6, block_size=2)
    original = table_of(pool, [1, 2, 3])
    fork = original.fork()
    assert (fork.blocks, fork.length, pool.num_used) == ([1, 2], 3, 2)
    first, second = (original, fork) if writer == "original" else (fork, original)
    assert first.reserve(1) == [(2, 3)]
    assert (first.blocks, second.blocks) == ([1, 3], [1, 2])
    assert [pool.references(block) for block in (1, 2, 3)] == [2, 1, 1]
    assert second.reserve(1) == []  # The block is exclusive now.
    first.extend([4])
    second.extend([5])
    third = BlockTable(pool)
    assert (third.reuse_prefix([1, 2, 3, 5, 0]), third.blocks) == (4, [1, second.blocks[1]])
    for table in (original, fork, third):
        table.release()
    assert (pool.num_used, pool.num_free) == (0, 5)


def test_a_fork_at_the_end_of_a_block_copies_nothing():
    pool = BlockPool(num_blocks=6, block_size=2)
    original = table_of(pool, [1, 2])
    fork = original.fork()
    assert original.reserve(1) == fork.reserve(1) == []
    assert (original.blocks, fork.blocks) == ([1, 2], [1, 3])


def test_reserved_but_empty_blocks_of_a_fork_are_replaced_without_a_copy():
    pool = BlockPool(num_blocks=6, block_size=2)
    original = BlockTable(pool)
    original.reserve(4)
    original.extend([7, 8])
    fork = original.fork()
    assert fork.reserve(2) == []
    assert (original.blocks, fork.blocks) == ([1, 2], [1, 3])


def test_no_copy_without_a_free_block():
    pool = BlockPool(num_blocks=3, block_size=2)
    original = table_of(pool, [1, 2, 3])
    fork = original.fork()
    with pytest.raises(OutOfBlocksError):
        fork.reserve(1)
    assert (fork.blocks, [pool.references(block) for block in (1, 2)]) == ([1, 2], [2, 2])


def test_a_block_is_not_released_twice():
    pool = BlockPool(num_blocks=3, block_size=2)
    block = pool.allocate()
    pool.release(block)
    with pytest.raises(ValueError, match="has no references"):
        pool.release(block)


@pytest.mark.parametrize("sizes", [(1, 4), (4, 0)])
def test_sizes_are_checked(sizes):
    with pytest.raises(ValueError, match="num_blocks must be at least 2"):
        BlockPool(*sizes)


def test_a_state_serves_a_sequence_of_any_length():
    pool = CachePool(num_blocks=0, block_size=2, num_states=3)
    table = CacheTable(pool)
    assert (table.length, table.blocks, table.state) == (0, [], 0)
    for count in (1, 5000):
        assert table.reserve(count) == ([], [])
        table.extend([7] * count)
    assert (table.length, table.blocks, table.state) == (5001, [], 1)
    assert (pool.states.num_used, pool.blocks, len(pool.pools)) == (1, None, 1)
    assert CacheTable(pool).reuse_prefix([7] * 5000) == 0  # A state is valid only after all of its tokens.
    table.release()
    assert (table.length, table.state, pool.states.num_used) == (0, 0, 0)


def test_a_shared_state_is_copied_before_it_is_written():
    pool = CachePool(num_blocks=6, block_size=2, num_states=2)
    original = CacheTable(pool)
    original.reserve(3)
    original.extend([1, 2, 3])
    forks = [original.fork(), original.fork()]
    assert [(fork.blocks, fork.state, fork.length) for fork in forks] == [([1, 2], 1, 3)] * 2
    assert forks[0].reserve(1) == ([(2, 3)], [(1, 2)])
    assert (forks[0].blocks, forks[0].state) == ([1, 3], 2)
    with pytest.raises(OutOfBlocksError, match="1 blocks are required, 0 are free"):
        forks[1].reserve(1)
    assert (forks[1].blocks, forks[1].state, pool.blocks.num_free) == ([1, 2], 1, 3)  # Unchanged.
    original.release()
    assert forks[1].reserve(1) == ([], [])
    for fork in forks:
        fork.release()
    assert (pool.blocks.num_used, pool.states.num_used) == (0, 0)


def test_nothing_is_taken_where_either_kind_is_lacking():
    pool = CachePool(num_blocks=2, block_size=2, num_states=2)
    long = CacheTable(pool)
    with pytest.raises(OutOfBlocksError, match="3 blocks are required, 2 are free"):
        long.reserve(5)
    assert (pool.blocks.num_used, pool.states.num_used, long.state) == (0, 0, 0)
    assert not pool.has_room([long], [5])
    others = [CacheTable(pool), CacheTable(pool)]
    assert pool.has_room([long, *others], [1, 1, 0])
    assert not pool.has_room([long, *others], [1, 1, 1])
