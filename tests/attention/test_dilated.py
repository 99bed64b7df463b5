"""Dilated attention against softmax attention with the mask of its pattern."""

import numpy as np
import pytest

from keras_transformer.attention import DilatedAttention, MultiHeadAttention, SoftmaxAttention, Visibility
from keras_transformer.positions import ALiBi


def pattern(length, window, dilation):
    apart = np.abs(np.arange(length)[:, None] - np.arange(length))
    return (apart % dilation == 0) & (apart < window * dilation)


@pytest.mark.parametrize("window, dilation, block_size", [(1, 3, None), (2, 1, None), (3, 2, 1), (2, 5, 8), (30, 3, 4)])
@pytest.mark.parametrize("causal", [False, True])
def test_any_length_is_the_masked_dense_formula(window, dilation, block_size, causal):
    for length in (1, 2, 7, 16, 33):
        query, key, value = np.random.default_rng(0).normal(size=(3, 2, length, 4, 8)).astype("float32")
        key, value = key[:, :, :2], value[:, :, :2]
        slots = np.arange(length, dtype="int32")
        mask = np.random.default_rng(1).uniform(size=(2, length)) > 0.3
        for masks in ({}, {"key_mask": mask, "query_mask": mask}):
            plain = Visibility.from_slots(slots, slots, causal=causal, **masks)
            masked = Visibility.from_slots(
                slots, slots, causal=causal, attention_mask=pattern(length, window, dilation), **masks
            )
            output = DilatedAttention(window, dilation, block_size)(
                query, key, value, visibility=plain, position=ALiBi()
            )
            expected = SoftmaxAttention()(query, key, value, visibility=masked, position=ALiBi())
            np.testing.assert_allclose(output, expected, atol=1e-6)


@pytest.mark.parametrize("chunk", [1, 2, 5])
def test_cache_keeps_the_reach(chunk):
    """A long sequence by chunks of one token (a strided read), of few, and of more than the window."""
    layer = MultiHeadAttention(2, 4, mechanism=DilatedAttention(3, 2), position="rotary")
    x = np.random.default_rng(0).normal(size=(2, 20, 8)).astype("float32")
    whole = layer(x, x, use_causal_mask=True)
    cache = layer.init_cache(2, max_length=1000)
    assert tuple(cache["recent_keys"].shape) == (2, 6, 2, 4)
    for index in range(0, 20, chunk):
        tokens = x[:, index : index + chunk]
        output, cache = layer(tokens, tokens, cache=cache, cache_index=np.int32(index))
        np.testing.assert_allclose(output, whole[:, index : index + chunk], atol=1e-5)
