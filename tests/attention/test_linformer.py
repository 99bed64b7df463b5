"""Linformer against the reference's figures and the dense formula."""

from pathlib import Path

import numpy as np
import pytest

from keras_transformer.attention import LinformerAttention, MultiHeadAttention, Visibility

DATA = Path(__file__).parents[1] / "data"


def test_reference():
    golden = np.load(DATA / "linformer_attention.npz")
    x, context = golden["inputs/x"], golden["inputs/context"]
    layer = MultiHeadAttention(2, 8, mechanism=LinformerAttention(20, 6))
    layer.build(x.shape, x.shape)
    projections = [golden["params/proj_k"], golden["params/proj_v"]]
    heads = []
    for name in ("q", "k", "v"):
        heads += [golden[f"params/to_{name}.weight"].T.reshape(16, 2, 8), np.zeros((2, 8))]
    output = [golden["params/to_out.weight"].T.reshape(2, 8, 16), golden["params/to_out.bias"]]
    layer.set_weights([*projections, *heads, *output])
    np.testing.assert_allclose(layer(x, x), golden["outputs/y"], atol=1e-5)
    short = golden["inputs/x_short"]
    np.testing.assert_allclose(layer(short, short), golden["outputs/y_short"], atol=1e-5)
    np.testing.assert_allclose(layer(x, context), golden["outputs/y_context"], atol=1e-5)


def dense(query, key, value, key_projection, value_projection, mask):
    """Each projection `(K, S, k)`; in float64."""
    key, value = (x * mask[:, :, None, None] for x in (key.astype("float64"), value.astype("float64")))
    key = np.repeat(np.einsum("bsnh,nsk->bknh", key, key_projection), 2, axis=2)
    value = np.repeat(np.einsum("bsnh,nsk->bknh", value, value_projection), 2, axis=2)
    weights = np.exp(np.einsum("btnh,bknh->bntk", query, key) / np.sqrt(query.shape[-1]))
    return np.einsum("bntk,bknh->btnh", weights / weights.sum(-1, keepdims=True), value)


@pytest.mark.parametrize("sharing", ["headwise", "key_value", "none"])
def test_every_sharing_is_the_dense_formula(sharing):
    rng = np.random.default_rng(0)
    for queries, keys in ((7, 7), (3, 11), (1, 1)):
        query = rng.normal(size=(2, queries, 4, 6)).astype("float32")
        key, value = rng.normal(size=(2, 2, keys, 2, 6)).astype("float32")
        layer = LinformerAttention(11, 3, sharing)
        layer.build(query.shape, key.shape, value.shape)
        weights = [np.asarray(weight) for weight in layer.weights]
        assert len(weights) == (1 if sharing == "key_value" else 2)
        projections = [np.broadcast_to(w, (2, 11, 3))[:, :keys] for w in (weights[0], weights[-1])]
        mask = rng.uniform(size=(2, keys)) > 0.3
        slots = (np.arange(n, dtype="int32") for n in (queries, keys))
        output = layer(query, key, value, visibility=Visibility.from_slots(*slots, key_mask=mask))
        np.testing.assert_allclose(output, dense(query, key, value, *projections, mask), atol=1e-5)


def test_more_keys_than_rows_are_refused():
    x = np.zeros((1, 12, 2, 4), "float32")
    with pytest.raises(ValueError, match="12 keys .*max_sequence_length=11"):
        LinformerAttention(11, 3)(x, x, x)
