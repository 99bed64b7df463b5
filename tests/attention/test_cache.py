import numpy as np
import pytest

from keras_transformer.attention.cache.dense import init_dense_cache, read_dense_cache, update_dense_cache


def test_each_row_writes_at_its_own_index():
    """B = T = K = 3, the case in which keras.ops.add takes one operand for a bias. Head k holds 10 k more."""
    cache = init_dense_cache(3, 6, num_heads=3, key_dim=1, value_dim=2, dtype="float32")
    key = np.arange(1, 10, dtype="float32").reshape(3, 3, 1, 1) + np.array([0, 10, 20]).reshape(1, 1, 3, 1)
    value = np.repeat(-key, 2, axis=-1)
    following = update_dense_cache(cache, key, value, np.array([0, 2, 3], "int32"))
    expected = np.array([[1, 2, 3, 0, 0, 0], [0, 0, 4, 5, 6, 0], [0, 0, 0, 7, 8, 9]])
    for head in range(3):
        stored = np.where(expected > 0, expected + 10 * head, 0)
        np.testing.assert_array_equal(np.asarray(following["key"])[:, head, :, 0], stored)
        np.testing.assert_array_equal(np.asarray(following["value"])[:, head, :, 1], -stored)
    read_key, read_value = read_dense_cache(following)
    assert np.asarray(read_key)[1, 3].ravel().tolist() == [5, 15, 25]
    assert read_value.shape == (3, 6, 3, 2)


def test_one_index_for_all_rows_overwrites():
    cache = init_dense_cache(2, 3, 1, 1, 1, "float32")
    ones = np.ones((2, 2, 1, 1), "float32")
    cache = update_dense_cache(cache, ones, ones, 0)
    cache = update_dense_cache(cache, ones * 5, ones * 5, 1)
    assert np.asarray(cache["key"])[:, 0, :, 0].tolist() == [[1, 5, 5], [1, 5, 5]]


@pytest.mark.parametrize("index", [-1, 2])
def test_an_index_without_room_is_refused(index):
    cache = init_dense_cache(1, 3, 1, 1, 1, "float32")
    ones = np.ones((1, 2, 1, 1), "float32")
    with pytest.raises(ValueError, match=f"cache_index={index}"):
        update_dense_cache(cache, ones, ones, index)
