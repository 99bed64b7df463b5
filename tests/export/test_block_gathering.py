"""Caches that are gathered from pools of blocks, in buffers of earlier calls."""

import numpy as np
import pytest

from keras_transformer.export.loading.paged_runtime import BlockGathering


@pytest.fixture
def pools():
    random = np.random.default_rng(0)
    return {
        "key": random.normal(size=(9, 3, 4, 5)).astype("float32"),
        "latent": random.integers(0, 99, (9, 1, 2, 7)).astype("int32"),
    }


def by_hand(pool, table):
    rows = [np.concatenate([pool[block] for block in row], axis=1) for row in table]
    return np.stack(rows)


def test_each_row_has_its_blocks_one_after_the_other(pools):
    gather, random = BlockGathering(pools), np.random.default_rng(1)
    for shape in ((2, 3), (4, 5), (1, 2), (3, 1), (4, 5)):
        table = random.integers(0, 9, shape)
        found = gather(table)
        for name, pool in pools.items():
            np.testing.assert_array_equal(found[name], by_hand(pool, table))
            assert found[name].dtype == pool.dtype
            assert found[name].flags.c_contiguous  # Runtimes take it without a copy.


def test_pools_that_changed_are_read_again_into_the_same_memory(pools):
    gather, table = BlockGathering(pools), np.array([[8, 0], [3, 8]])
    first = gather(table)
    pools["key"][8] += 1
    second = gather(table)
    np.testing.assert_array_equal(second["key"], by_hand(pools["key"], table))
    assert all(np.shares_memory(first[name], second[name]) for name in pools)
