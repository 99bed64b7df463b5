"""Attention within a window against softmax attention with the mask of that window."""

import numpy as np
import pytest

from keras_transformer.attention import LocalAttention, MultiHeadAttention, SoftmaxAttention, Visibility
from keras_transformer.positions import Rotary


def heads(length, seed=0):
    return np.random.default_rng(seed).normal(size=(3, 2, length, 4, 8)).astype("float32")


@pytest.mark.parametrize("window, block_size", [(1, None), (3, None), (4, 1), (5, 16), (9, 2), (40, 7)])
@pytest.mark.parametrize("causal", [False, True])
def test_any_length_is_the_masked_dense_formula(window, block_size, causal):
    for length in (1, 2, 7, 19, 32):
        query, key, value = heads(length)
        slots = np.arange(length, dtype="int32")
        mask = np.random.default_rng(1).uniform(size=(2, length)) > 0.3
        for key_mask in (None, mask):
            plain = Visibility.from_slots(slots, slots, causal=causal, key_mask=key_mask)
            masks = {"query_mask": key_mask, "key_mask": key_mask}  # The same tokens.
            masked = Visibility.from_slots(slots, slots, causal=causal, window=window, **masks)
            output = LocalAttention(window, block_size)(query, key[:, :, :2], value[:, :, :2], visibility=plain)
            expected = SoftmaxAttention()(query, key[:, :, :2], value[:, :, :2], visibility=masked)
            np.testing.assert_allclose(output, expected, atol=1e-6)


def test_cache_keeps_the_window_and_rotary_keys():
    """A long sequence token by token, with 4 keys in the cache, is the whole of it."""
    layer = MultiHeadAttention(2, 4, mechanism=LocalAttention(4), position=Rotary())
    x = np.random.default_rng(0).normal(size=(2, 23, 8)).astype("float32")
    whole = layer(x, x, use_causal_mask=True)
    cache = layer.init_cache(2, max_length=1000)
    assert {name: tuple(slab.shape) for name, slab in cache.items()} == dict.fromkeys(
        ("recent_keys", "recent_values"), (2, 4, 2, 4)
    )
    for index in range(23):
        token = x[:, index : index + 1]
        output, cache = layer(token, token, cache=cache, cache_index=np.int32(index))
        np.testing.assert_allclose(output[:, 0], whole[:, index], atol=1e-5)
