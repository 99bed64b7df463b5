"""Gated retention against its formula, for every pair of tokens, in float64."""

import numpy as np
import pytest

from keras_transformer.recurrence import GatedRetention, MultiScaleRetention
from keras_transformer.recurrence.decayed_products import decayed_products


def dense(query, key, value, log_decay, mask, state):
    """`Σ_s Π_{s < i <= t} γ_i (q_t · k_s) v_s`, and the state after the last token."""
    query, key, value, state = (x.astype("float64") for x in (query, key, value, state))
    faded = np.cumsum(log_decay.astype("float64") * mask[:, :, None], axis=1)  # (B, T, N)
    weights = np.exp(np.minimum(faded[:, :, None] - faded[:, None], 0)) * mask[:, None, :, None]
    weights = weights * np.tril(np.ones(weights.shape[1:3]))[..., None]  # (B, T, S, N)
    output = np.einsum("btnm,bsnm,btsn,bsnh->btnh", query, key, weights, value)
    output = output + np.einsum("btn,btnm,bnmh->btnh", np.exp(faded), query, state)
    following = np.einsum("bsn,bsnm,bsnh->bnmh", weights[:, -1], key, value)
    return output, following + np.exp(faded[:, -1])[..., None, None] * state


@pytest.mark.parametrize("length", [1, 7, 64, 65, 300])
def test_any_length_in_any_chunks_is_the_dense_formula(length):
    rng = np.random.default_rng(length)
    query, key, value = rng.normal(size=(3, 2, length, 2, 4)).astype("float32")
    log_decay = -rng.gamma(0.2, 1.0, size=(2, length, 2)).astype("float32")
    state = rng.normal(size=(2, 2, 4, 4)).astype("float32")
    for mask in (np.ones((2, length)), (rng.uniform(size=(2, length)) > 0.4) * 1.0):
        given, seen = mask.astype("float32"), mask[:, :, None, None]
        expected, expected_state = dense(query, key, value, log_decay, mask, state)
        empty, _ = dense(query, key, value, log_decay, mask, 0 * state)
        for chunk_size in (1, 7, 64):
            output, following = decayed_products(query, key, value, log_decay, chunk_size, given, state)
            np.testing.assert_allclose(output * seen, expected * seen, atol=1e-5 * np.abs(expected).max())
            np.testing.assert_allclose(following, expected_state, atol=1e-5 * np.abs(expected_state).max())
            output, _ = decayed_products(query, key, value, log_decay, chunk_size, given)
            np.testing.assert_allclose(output * seen, empty * seen, atol=1e-5 * np.abs(empty).max())


def test_the_gate_is_the_root_of_a_sigmoid():
    """Gates of one half, `temperature` 2: each step leaves the root of it, whatever the token."""
    layer = GatedRetention(1, 2, value_dim=2, temperature=2.0)
    x = np.random.default_rng(0).normal(size=(1, 1, 4)).astype("float32")
    layer.build(x.shape)
    layer.decay_dense.kernel.assign(np.zeros((4, 1)))
    layer.value_dense.kernel.assign(np.zeros((4, 2)))
    cache = {"state": np.ones((1, 1, 2, 2), "float32")}
    _, following = layer(x, cache=cache, cache_index=0)
    np.testing.assert_allclose(following["state"], np.full((1, 1, 2, 2), 0.5**0.5), rtol=1e-6)


def test_open_gates_of_a_constant_are_multi_scale_retention():
    """With the gate at 1 - 2^-5, that of the first head, the layer is retention."""
    x = np.random.default_rng(0).normal(size=(2, 40, 8)).astype("float32")
    gated = GatedRetention(1, 4, temperature=1.0, use_bias=True, chunk_size=16)
    plain = MultiScaleRetention(1, 4, use_bias=True, chunk_size=16)
    expected = np.asarray(plain(x))
    gated.build(x.shape)
    gated.set_weights([*plain.get_weights(), np.zeros((8, 1)), np.log([31.0])])
    np.testing.assert_allclose(gated(x), expected, atol=2e-6)


@pytest.mark.exhaustive
def test_a_hundred_thousand_tokens(read):
    layer = GatedRetention(2, 2, chunk_size=100)
    x = np.random.default_rng(0).normal(size=(1, 100_000, 4)).astype("float32")
    output, state = read(layer, x, [1000] * 99 + [997, 1, 1, 1])
    assert state["state"].shape == (1, 2, 2, 4)
    assert np.all(np.isfinite(output))
    np.testing.assert_allclose(output[:, -1000:], np.asarray(layer(x))[:, -1000:], atol=1e-3)


def test_a_temperature_that_is_not_above_0_is_refused():
    with pytest.raises(ValueError, match="temperature"):
        GatedRetention(2, 4, temperature=0.0)
