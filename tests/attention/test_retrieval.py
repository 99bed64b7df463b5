"""Retrieval of keys against the dense formula, and against softmax attention where all keys are retrieved."""

import numpy as np
import pytest

from keras_transformer.attention import MultiHeadAttention, RetrievalAttention, SoftmaxAttention, Visibility


def heads(query_length, key_length, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(2, query_length, 4, 8)), *rng.normal(size=(2, 2, key_length, 2, 8))


def formula(query, key, value, top_k, mask):
    """Softmax over the `top_k` largest products of those that are seen; the mask is `(B, 1, T, S)`."""
    key, value = (np.repeat(x, 2, axis=2) for x in (key, value))
    scores = np.einsum("btnh,bsnh->bnts", query, key) / np.sqrt(8)
    scores = np.where(mask, scores, -np.inf)
    best = np.sort(scores, axis=-1)[..., -top_k:][..., :1]
    weights = np.where((scores >= best) & mask, np.exp(scores - scores.max(-1, keepdims=True, initial=-1e9)), 0)
    total = weights.sum(-1, keepdims=True)
    weights = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)
    return np.einsum("bnts,bsnh->btnh", weights, value)


@pytest.mark.parametrize("top_k, block_size", [(1, 3), (4, 7), (4, 2), (3, 100)])
@pytest.mark.parametrize("causal", [False, True])
def test_formula(top_k, block_size, causal):
    for query_length, key_length in ((1, 1), (5, 5), (23, 23), (3, 29)):
        query, key, value = heads(query_length, key_length)
        mask = np.ones((2, 1, query_length, key_length), bool)
        if causal:
            mask = mask & np.tri(query_length, key_length, dtype=bool)
        key_mask = np.random.default_rng(1).uniform(size=(2, key_length)) > 0.4
        for padding in (None, key_mask):
            slots = (np.arange(query_length, dtype="int32"), np.arange(key_length, dtype="int32"))
            visibility = Visibility.from_slots(*slots, causal=causal, key_mask=padding)
            output = RetrievalAttention(top_k, block_size)(query, key, value, visibility=visibility)
            seen = mask if padding is None else mask & padding[:, None, None]
            np.testing.assert_allclose(output, formula(query, key, value, top_k, seen), atol=1e-5)


@pytest.mark.parametrize("top_k", [11, 40])
def test_all_keys_are_softmax_attention(top_k):
    query, key, value = heads(6, 11)
    output = RetrievalAttention(top_k, block_size=4)(query, key, value)
    np.testing.assert_allclose(output, SoftmaxAttention()(query, key, value), atol=1e-5)


def test_reads_a_memory_of_its_encoder():
    """Projected once, as a decoder does step after step."""
    layer = MultiHeadAttention(4, 8, mechanism=RetrievalAttention(3, 4), num_key_value_heads=2, position="rotary")
    rng = np.random.default_rng(0)
    x, memory = rng.normal(size=(2, 2, 16)), rng.normal(size=(2, 19, 16))
    expected = layer(x, memory)
    output, _ = layer(x, None, cache=layer.memory_cache(memory))
    np.testing.assert_allclose(output, expected, atol=1e-5)
