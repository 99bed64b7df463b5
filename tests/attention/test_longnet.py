"""LongNet's dilated segments against the reference, and against a loop over branches, heads and tokens."""

from pathlib import Path

import keras
import numpy as np
import pytest

from keras_transformer.attention import LongNetAttention, MultiHeadAttention, Visibility

DATA = Path(__file__).parents[1] / "data"


def test_reference():
    golden = np.load(DATA / "longnet_dilated_attention.npz")
    x, ragged = golden["inputs/x"], golden["inputs/x_ragged"]
    layer = MultiHeadAttention(4, 4, mechanism=LongNetAttention([4, 8], [1, 2]))
    layer.build(x.shape, x.shape)
    weights = []
    for name in ("q", "k", "v"):
        weights.append(golden[f"params/{name}_proj.weight"].T.reshape(16, 4, 4))
        weights.append(golden[f"params/{name}_proj.bias"].reshape(4, 4))
    layer.set_weights([*weights, golden["params/out_proj.weight"].T.reshape(4, 4, 16), golden["params/out_proj.bias"]])
    np.testing.assert_allclose(layer(x, x, use_causal_mask=True), golden["outputs/y"], atol=1e-6)
    np.testing.assert_allclose(layer(ragged, ragged, use_causal_mask=True), golden["outputs/y_ragged"], atol=1e-6)


def by_loops(query, key, value, mask, branches, causal):
    """The formula in float64, one query of one head at a time."""
    batch, length, heads, _ = query.shape
    group, output = heads // key.shape[2], np.zeros((batch, length, heads, value.shape[3]))
    for b, i, h in np.ndindex(batch, length, heads):
        total = 0.0
        for segment, rate in branches:
            offset = h // -(-heads // rate)
            keys = [
                j for j in range(length) if j // segment == i // segment and j % segment % rate == offset and mask[b, j]
            ]
            keys = [j for j in keys if j <= i or not causal]
            if i % segment % rate != offset or not keys or not mask[b, i]:
                continue
            scores = np.exp(
                key[b, keys, h // group].astype(float) @ query[b, i, h].astype(float) / np.sqrt(query.shape[3])
            )
            output[b, i, h] += scores @ value[b, keys, h // group]
            total += scores.sum()
        output[b, i, h] /= total or 1.0
    return output


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("branches", [[(4, 1), (12, 3)], [(2, 2), (8, 4)], [(6, 6)]])
def test_any_length_is_the_formula(branches, causal):
    rng = np.random.default_rng(0)
    mechanism = LongNetAttention(*zip(*branches, strict=True))
    for length, key_heads in ((1, 4), (5, 2), (21, 1)):
        query, key, value = (
            rng.normal(size=(2, length, heads, 3)).astype("float32") for heads in (4, key_heads, key_heads)
        )
        mask = rng.uniform(size=(2, length)) > 0.3
        for key_mask in (None, mask):
            slots = np.arange(length, dtype="int32")
            visibility = Visibility.from_slots(slots, slots, causal=causal, key_mask=key_mask)
            expected = by_loops(query, key, value, mask if key_mask is not None else mask | True, branches, causal)
            np.testing.assert_allclose(mechanism(query, key, value, visibility=visibility), expected, atol=2e-6)


@pytest.mark.parametrize("key_heads", [4, 2])
def test_cache_keeps_the_longest_segment(key_heads):
    """Rows at different places, chunks longer than a few tokens, segments whose lengths do not divide each other."""
    mechanism = LongNetAttention([4, 6], [1, 3])
    layer = MultiHeadAttention(4, 2, num_key_value_heads=key_heads, mechanism=mechanism, position="rotary")
    x = np.random.default_rng(0).normal(size=(2, 48, 8)).astype("float32")
    whole = np.asarray(layer(x, x, use_causal_mask=True))
    cache, lengths = layer.init_cache(2, max_length=1000), np.array([5, 7], "int32")
    assert cache["recent_keys"].shape == (2, 6, key_heads, 2)
    mask = np.arange(7)[None] < lengths[:, None]
    _, cache = layer(x[:, :7], x[:, :7], query_mask=mask, cache=cache, cache_index=0)
    for size in (1, 20, 2):
        part = np.stack([x[row, n : n + size] for row, n in enumerate(lengths)])
        output, cache = layer(part, part, cache=cache, cache_index=lengths)
        expected = np.stack([whole[row, n : n + size] for row, n in enumerate(lengths)])
        np.testing.assert_allclose(output, expected, atol=1e-5)
        lengths = lengths + size


def test_mixing_gradient():
    """One head, two branches: what the query learns through the mixing of them is there only if asked for."""

    def changes(mixing_gradient):
        layer = MultiHeadAttention(
            1, 4, mechanism=LongNetAttention([1, 2], [1, 1], mixing_gradient=mixing_gradient), seed=1
        )
        x = np.random.default_rng(0).normal(size=(2, 1, 4)).astype("float32")
        x = np.concatenate([x, -x], axis=1)
        inputs = keras.Input((2, 4))
        model = keras.Model(inputs, layer(inputs, inputs))
        model.set_weights([np.random.default_rng(i).normal(size=w.shape) for i, w in enumerate(model.weights)])
        before = np.asarray(layer.query_dense.kernel)
        model.compile(keras.optimizers.SGD(0.1), loss="mse")
        model.train_on_batch(x, x * 3)
        return np.asarray(layer.query_dense.kernel) - before

    stopped, flows = changes(False), changes(True)
    assert np.abs(stopped).max() > 1e-5  # The branch of two tokens.
    assert np.abs(flows - stopped).max() > 1e-5


def test_invalid_branches_are_refused():
    with pytest.raises(ValueError, match="divide"):
        LongNetAttention([4, 6], [1, 4])
    with pytest.raises(ValueError, match="needs a dilation rate"):
        LongNetAttention([4, 6], [1])
