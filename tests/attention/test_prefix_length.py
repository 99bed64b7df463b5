"""Causal attention in which the first tokens of a row attend to one another."""

import numpy as np
import pytest

from keras_transformer.attention import LocalAttention, MultiHeadAttention

X = np.random.default_rng(0).normal(size=(2, 5, 6)).astype("float32")
LENGTHS = np.array([3, 0], "int32")


def layer(**options):
    built = MultiHeadAttention(2, 4, position="rotary", **options)
    built.build(X.shape, X.shape)
    return built


def test_the_mask_is_that_of_a_prefix_language_model():
    attention = layer()
    visible = np.tril(np.ones((2, 5, 5), bool))
    visible[0, :3, :3] = True
    expected = np.asarray(attention(X, X, attention_mask=visible))
    found = np.asarray(attention(X, X, use_causal_mask=True, prefix_length=LENGTHS))
    np.testing.assert_allclose(found, expected, atol=1e-6)
    causal = np.asarray(attention(X, X, use_causal_mask=True))
    assert np.abs(found - causal)[0, :2].max() > 0.01
    np.testing.assert_allclose(found[1], causal[1], atol=1e-6)


def test_a_cache_gives_what_whole_sequences_give():
    attention = layer(mechanism="blockwise")
    expected = np.asarray(attention(X, X, use_causal_mask=True, prefix_length=LENGTHS))
    cache = attention.init_cache(2, 7)
    first, cache = attention(X[:, :3], X[:, :3], cache=cache, cache_index=0, prefix_length=LENGTHS)
    rest, _ = attention(X[:, 3:], X[:, 3:], cache=cache, cache_index=3, prefix_length=LENGTHS)
    np.testing.assert_allclose(np.concatenate([first, rest], axis=1), expected, atol=1e-6)


def test_refusals():
    with pytest.raises(ValueError, match="LocalAttention"):
        layer(mechanism=LocalAttention(3))(X, X, use_causal_mask=True, prefix_length=LENGTHS)
    with pytest.raises(ValueError, match="sliding window"):
        layer(sliding_window=3)(X, X, use_causal_mask=True, prefix_length=LENGTHS)
