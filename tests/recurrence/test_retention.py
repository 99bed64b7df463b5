"""Retention against the reference's three forms, and the dense formula."""

import numpy as np
import pytest

from keras_transformer.recurrence import MultiScaleRetention
from keras_transformer.recurrence.decayed_products import decayed_products

DECAY = np.log([0.5, 0.97])


def retention(golden, **options):
    """The reference's layer: `epsilon` 0 there, which alone makes its own forms equal."""
    arrays = golden("retnet_retention")
    layer = MultiScaleRetention(2, 8, **{"epsilon": 1e-20, **options})
    layer.build(arrays["inputs/x"].shape)
    names = [f"params/{name}_proj.weight" for name in ("q", "k", "v", "g", "out")]
    layer.set_weights([arrays[name].T for name in names])
    return layer, arrays


@pytest.mark.parametrize("chunk_size", [1, 4, 5, 64])
def test_outputs_of_the_reference(golden, read, chunk_size):
    layer, arrays = retention(golden, chunk_size=chunk_size)
    x = arrays["inputs/x"]
    for form in ("parallel", "recurrent", "chunkwise"):
        np.testing.assert_allclose(layer(x), arrays[f"outputs/{form}_eps0"], atol=2e-6)
    stepwise, state = read(layer, x, [1] * 12)
    np.testing.assert_allclose(stepwise, arrays["outputs/recurrent_eps0"], atol=2e-6)
    # The reference divides its state by the root of the sum of the decays.
    scaled = state["state"].transpose(0, 1, 3, 2) / np.sqrt(arrays["outputs/state_scale"])[:, None, None]
    np.testing.assert_allclose(scaled, arrays["outputs/state_kv"], atol=1e-6)


def test_epsilon_of_the_reference_changes_little(golden):
    """Without its scales before the norm, `epsilon` weighs otherwise: by 2e-5 here, where its own forms differ by 9e-3."""
    layer, arrays = retention(golden, epsilon=1e-6)
    np.testing.assert_allclose(layer(arrays["inputs/x"]), arrays["outputs/parallel_eps1e-6"], atol=5e-5)


def dense(query, key, value, decay, mask, state=None):
    """`Σ_s γ^(t - s) (q_t · k_s) v_s` of every pair, and the state, in float64; time is counted in tokens that are real."""
    query, key, value = (x.astype("float64") for x in (query, key, value))
    places = np.cumsum(mask, axis=1)
    distances = places[:, None, :, None] - places[:, None, None, :]  # (B, 1, T, S)
    weights = np.exp(decay[:, None, None] * np.maximum(distances, 0)) * np.tril(np.ones(distances.shape[2:]))
    weights = weights * mask[:, None, None]
    output = np.einsum("btnm,bsnm,bnts,bsnh->btnh", query, key, weights, value)
    left = np.exp(decay * (places[:, -1:] - places)[:, :, None]) * mask[:, :, None]  # (B, S, N)
    following = np.einsum("bsn,bsnm,bsnh->bnmh", left, key, value)
    if state is not None:
        faded = np.exp(decay * places[:, :, None])  # (B, T, N)
        output = output + np.einsum("btn,btnm,bnmh->btnh", faded, query, state)
        following = following + faded[:, -1, :, None, None] * state
    return output, following


@pytest.mark.parametrize("length", [1, 2, 7, 64, 65, 300])
def test_any_length_in_any_chunks_is_the_dense_formula(length):
    rng = np.random.default_rng(length)
    query, key, value = rng.normal(size=(3, 2, length, 2, 4)).astype("float32")
    state = rng.normal(size=(2, 2, 4, 4)).astype("float32")
    masks = {"whole": np.ones((2, length)), "holes": (rng.uniform(size=(2, length)) > 0.4) * 1.0}
    for chunk_size in (1, 7, 64):
        for name, mask in masks.items():
            given = None if name == "whole" else mask.astype("float32")
            output, _ = decayed_products(query, key, value, DECAY, chunk_size, given)
            expected, _ = dense(query, key, value, DECAY, mask)
            seen = mask[:, :, None, None] > 0
            np.testing.assert_allclose(output * seen, expected * seen, atol=3e-5)
            output, following = decayed_products(query, key, value, DECAY, chunk_size, given, state)
            expected, expected_state = dense(query, key, value, DECAY, mask, state)
            np.testing.assert_allclose(output * seen, expected * seen, atol=3e-5)
            np.testing.assert_allclose(following, expected_state, atol=3e-5)


def test_padding_is_no_step(golden):
    """Padding anywhere, positions counted without it: what the tokens alone give."""
    layer, arrays = retention(golden, chunk_size=5)
    x = arrays["inputs/x"]
    mask = np.ones((2, 20), bool)
    mask[:, [0, 4, 5, 6, 13, 17, 18, 19]] = False
    padded, positions = np.full((2, 20, 16), 50.0, "float32"), np.zeros(20, "int32")
    padded[:, mask[0]], positions[mask[0]] = x, np.arange(12)
    output = np.asarray(layer(padded, padded, value_mask=mask, positions=positions))
    np.testing.assert_allclose(output[:, mask[0]], arrays["outputs/parallel_eps0"], atol=3e-6)
    np.testing.assert_array_equal(output[:, ~mask[0]], 0)


@pytest.mark.exhaustive
def test_a_hundred_thousand_tokens(read):
    layer = MultiScaleRetention(2, 2, chunk_size=100)
    x = np.random.default_rng(0).normal(size=(1, 100_000, 4)).astype("float32")
    whole = np.asarray(layer(x))
    sizes = [1000] * 99 + [997, 1, 1, 1]
    output, state = read(layer, x, sizes)
    assert state["state"].shape == (1, 2, 2, 4)
    assert np.all(np.isfinite(output))
    np.testing.assert_allclose(output[:, -1000:], whole[:, -1000:], atol=1e-3)


def test_odd_heads_are_refused():
    with pytest.raises(ValueError, match="key_dim must be even"):
        MultiScaleRetention(2, 3)
