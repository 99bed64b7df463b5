"""Attention with one projection: the formula, and what it shares and refuses."""

import numpy as np
import pytest

from keras_transformer.attention import MultiHeadAttention, SubspaceAttention


def layer(**options):
    return MultiHeadAttention(2, 4, mechanism="subspace", use_bias=False, use_output_bias=True, **options)


def test_formula_with_a_mask():
    x = np.random.default_rng(0).normal(size=(2, 5, 8)).astype("float32")
    mask = np.random.default_rng(1).integers(0, 2, (2, 5, 5)).astype(bool) | np.eye(5, dtype=bool)
    attention = layer()
    output, scores = attention(x, x, attention_mask=mask, return_attention_scores=True)
    u, w, b = (np.asarray(weight, "float64") for weight in attention.weights)
    z = np.einsum("btd,dnh->bnth", x, u)
    weights = np.where(mask[:, None], np.exp(np.einsum("bnth,bnsh->bnts", z, z) / 2), 0)
    weights /= weights.sum(-1, keepdims=True)
    np.testing.assert_allclose(scores, weights, atol=1e-6)
    np.testing.assert_allclose(output, np.einsum("bnts,bnsh,nhd->btd", weights, z, w) + b, atol=1e-6)


def test_a_rotary_position_turns_queries_and_keys_and_not_values():
    """Tokens that are all one have the same mean wherever they stand, though their scores differ."""
    attention = layer(position="rotary")
    x = np.tile(np.random.default_rng(0).normal(size=(1, 1, 8)), (1, 6, 1)).astype("float32")
    output, scores = attention(x, x, return_attention_scores=True)
    plain = layer()
    plain.build(x.shape, x.shape)
    plain.set_weights(attention.get_weights())
    np.testing.assert_allclose(output, plain(x, x), atol=1e-5)
    assert np.ptp(np.asarray(scores)[0, 0, 0]) > 1e-3


@pytest.mark.parametrize("options", [{"value_dim": 3}, {"num_key_value_heads": 1}])
def test_values_that_cannot_be_the_queries_are_refused(options):
    x = np.ones((1, 3, 8), "float32")
    with pytest.raises(ValueError, match="uses its queries as values"):
        layer(**options)(x, x)


def test_no_memory_of_other_tokens():
    attention = layer()
    x = np.ones((1, 3, 8), "float32")
    attention(x, x)
    assert attention.value_dense is None
    with pytest.raises(ValueError, match="no memory_cache"):
        attention.memory_cache(x)
    with pytest.raises(ValueError, match="cross"):
        attention(x, np.ones((1, 4, 8), "float32"))


def test_a_mechanism_alone_takes_three_tensors_alike():
    x = np.random.default_rng(0).normal(size=(1, 4, 1, 3)).astype("float32")
    alone = np.asarray(SubspaceAttention()(x, x, x))
    weights = np.exp(x[0, :, 0] @ x[0, :, 0].T / np.sqrt(3))
    expected = weights / weights.sum(1, keepdims=True) @ x[0, :, 0]
    np.testing.assert_allclose(alone[0, :, 0], expected, atol=1e-6)
