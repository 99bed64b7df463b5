"""Slots in blocks and states in rows, by hand; and that a model cannot tell them from a cache in one piece."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.attention import MultiHeadAttention
from keras_transformer.attention.cache.layout import bits, split_cache
from keras_transformer.attention.cache.paged import SCRATCH_BLOCK, PagedCache
from keras_transformer.attention.cache.state_pool import SCRATCH_STATE, StatePool


def pages_of(quantize=False, heads=1, width=2, num_blocks=5, block_size=2):
    return PagedCache({"key": (heads, width, "float32")}, num_blocks, block_size, quantize)


def array(tensor):
    return ops.convert_to_numpy(tensor)


def test_slots_are_read_in_the_order_of_the_table():
    pages = pages_of(heads=2, width=1)
    # Of block 3 and head 1: 310, 311 at its two slots.
    pool = [[[100 * block + 10 * head + slot] for slot in (0, 1)] for block in range(5) for head in (0, 1)]
    cache = pages.read({"key": np.array(pool, "float32")}, np.array([[3, 1], [4, 0]]))
    assert array(cache["key"])[..., 0].tolist() == [
        [[300, 301, 100, 101], [310, 311, 110, 111]],
        [[400, 401, 0, 1], [410, 411, 10, 11]],
    ]


def test_new_tokens_go_to_their_blocks_and_padding_to_none():
    pages = pages_of(heads=2, width=1)
    cache = np.arange(16, dtype="float32").reshape(2, 2, 4, 1) + 1
    pools = pages.write(
        pages.init_pools(),
        {"key": cache},
        np.array([[3, 1], [4, SCRATCH_BLOCK]]),
        cache_index=np.array([1, 0]),
        lengths=np.array([3, 1]),
        count=3,
    )
    found = array(pools["key"])[..., 0].reshape(5, 2, 2)
    assert found[3].tolist() == [[0, 2], [0, 6]]  # Slot 1 of row 0.
    assert found[1].tolist() == [[3, 4], [7, 8]]  # Slots 2 and 3.
    assert found[4].tolist() == [[9, 0], [13, 0]]  # Slot 0 of row 1; its other two tokens are padding.
    assert found[2].tolist() == [[0, 0], [0, 0]]


def test_blocks_are_copied():
    pages = pages_of(heads=2, width=1, quantize=True)
    pools = {name: np.arange(array(pool).size).reshape(pool.shape) for name, pool in pages.init_pools().items()}
    pools = {"key": pools["key"].astype("int8"), "key_scale": pools["key_scale"].astype("float32")}
    copied = pages.copy(pools, np.array([1, 2]), np.array([4, 3]))
    for name, pool in pools.items():
        blocks, found = pool.reshape(5, -1), array(copied[name]).reshape(5, -1)
        assert found.tolist() == blocks[[0, 1, 2, 2, 1]].tolist()


def test_int8_keeps_each_slot_and_head_to_half_a_level():
    pages = pages_of(quantize=True, heads=2, width=4)
    cache = np.random.default_rng(0).normal(size=(1, 2, 4, 4)).astype("float32")
    cache[0, 0, 1] *= 1000  # One head of one slot does not make the others coarse.
    cache[0, 1, 2] = 0
    table = np.array([[2, 4]])
    pools = pages.write(pages.init_pools(), {"key": cache}, table, np.array([0]), np.array([4]), 4)
    assert keras.backend.standardize_dtype(pools["key"].dtype) == "int8"
    found = array(pages.read(pools, table)["key"])
    level = np.abs(cache).max(axis=-1, keepdims=True) / 127
    assert (np.abs(found - cache) <= level * 0.5001).all()
    assert np.abs(found - cache).max() > 0
    assert (found[0, 1, 2] == 0).all()


@pytest.mark.parametrize("quantize, expected", [(False, 2 * 3 * 8 * 4), (True, 2 * 3 * (8 + 4))])
def test_the_memory_of_a_block(quantize, expected):
    pages = pages_of(quantize, heads=2, width=8, block_size=3)
    assert pages.block_bytes == expected
    pools = pages.init_pools().values()
    assert sum(array(pool).nbytes for pool in pools) == expected * pages.num_blocks


@pytest.mark.parametrize("mechanism", ["softmax", "lsh"])
def test_attention_cannot_tell_blocks_from_one_piece(mechanism):
    layer = MultiHeadAttention(4, 8, num_key_value_heads=4, mechanism=mechanism, position="rotary", seed=0)
    x = np.random.default_rng(0).normal(size=(2, 6, 16)).astype("float32")
    pages = PagedCache.from_cache(layer.init_cache, num_blocks=7, block_size=4)
    pools, table = pages.init_pools(), np.array([[5, 2], [1, 6]])
    # What blocks held before shows nowhere.
    pools = {name: pool + ops.cast(7, pool.dtype) for name, pool in pools.items()}
    dense, index = layer.init_cache(2, 8), np.array([0, 0], "int32")
    for count in (3, 1, 2):
        new, x = x[:, :count], x[:, count:]
        expected, dense = layer(new, new, cache=dense, cache_index=index)
        output, cache = layer(new, new, cache=pages.read(pools, table), cache_index=index)
        pools = pages.write(pools, cache, table, index, np.array([count, count]), count)
        np.testing.assert_allclose(array(output), array(expected), atol=1e-6)
        index = index + count
    assert np.abs(array(expected)).max() > 0.01


def test_a_cache_is_split_into_what_grows_and_what_does_not():
    layer = MultiHeadAttention(2, 4, mechanism="local")
    assert split_cache(layer.init_cache) == (
        {},
        {"recent_keys": ((128, 2, 4), "float32"), "recent_values": ((128, 2, 4), "float32")},
    )

    def init_cache(batch_size, length):
        return {"key": ops.zeros((batch_size, 2, length, 4)), "sums": ops.zeros((batch_size, 3), "float16")}

    assert split_cache(init_cache) == ({"key": (2, 4, "float32")}, {"sums": ((3,), "float16")})
    with pytest.raises(ValueError, match=r"'key' has shape \(1, 6\) for 3 tokens and \(1, 10\) for 5"):
        PagedCache.from_cache(lambda batch_size, length: {"key": ops.zeros((batch_size, 2 * length))}, 4, 2)


def test_states_are_gathered_put_back_and_copied():
    pooled = StatePool({"a": ((2,), "float32"), "b": ((1, 2), "float32")}, num_states=5)
    pools = {
        "a": np.arange(10, dtype="float32").reshape(5, 2),
        "b": 10 * np.arange(10, dtype="float32").reshape(5, 1, 2),
        "key": np.ones(3),
    }
    rows = np.array([3, 1, SCRATCH_STATE])
    cache = pooled.read(pools, rows, cache_index=np.array([7, 0, 0]))
    assert array(cache["a"]).tolist() == [[6, 7], [0, 0], [0, 0]]  # Of the second nothing has been read yet.
    assert array(cache["b"]).tolist() == [[[60, 70]], [[0, 0]], [[0, 0]]]
    after = pooled.write(pools, {name: -array(tensor) - 1 for name, tensor in cache.items()}, rows)
    assert array(after["a"]).tolist() == [[-1, -1], [-1, -1], [4, 5], [-7, -8], [8, 9]]
    assert array(after["b"])[:, 0].tolist() == [[-1, -1], [-1, -1], [40, 50], [-61, -71], [80, 90]]
    copied = pooled.copy(pools, np.array([4, 1]), np.array([2, 3]))
    assert array(copied["a"]).tolist() == [[0, 1], [2, 3], [8, 9], [2, 3], [8, 9]]
    assert after["key"] is pools["key"]


@pytest.mark.parametrize("sizes", [{"num_blocks": 1}, {"block_size": 0}])
def test_sizes_are_checked(sizes):
    with pytest.raises(ValueError, match="num_blocks >= 2"):
        pages_of(**sizes)


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        ("bool", 8),
        ("int4", 4),
        ("uint8", 8),
        ("int64", 64),
        ("float16", 16),
        ("bfloat16", 16),
        ("float32", 32),
        ("float8_e4m3fn", 8),
        ("float8_e5m2", 8),
        ("float8_e4m3b11fnuz", 8),
        ("float8_e8m0fnu", 8),
        ("float6_e2m3fn", 6),
        ("float4_e2m1fn", 4),
        ("complex64", 64),
    ],
)
def test_bits_of_every_kind_of_dtype(dtype, expected):
    assert bits(dtype) == expected


@pytest.mark.parametrize("dtype", ["string", "float7", "int3", "8", ""])
def test_bits_of_an_unknown_dtype(dtype):
    with pytest.raises(ValueError, match="Unknown numeric dtype"):
        bits(dtype)


def test_bytes_of_a_block_of_8_bit_floats():
    assert PagedCache({"key": (2, 4, "float8_e4m3fn")}, num_blocks=2, block_size=3).block_bytes == 2 * 3 * 4
