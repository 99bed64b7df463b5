"""Relative keys and values against the formula of the paper, with a vector for each pair, in float64."""

import numpy as np
import pytest

from keras_transformer.attention import LocalAttention, MultiHeadAttention, SoftmaxAttention
from keras_transformer.positions import ShawRelative


def dense_formula(layer, x, query_positions, key_positions, mask):
    weights = {w.path.split("/", 1)[-1]: np.asarray(w, "float64") for w in layer.weights}
    weight = {}
    for part in ("query", "key", "value"):
        kernel = next(v for k, v in weights.items() if f"{part}/kernel" in k)
        bias = next(v for k, v in weights.items() if f"{part}/bias" in k)
        weight[part] = np.einsum("btd,dnh->bnth", x, kernel) + bias[:, None]
    reach = layer.position.max_distance
    distance = np.clip(key_positions[..., None, :] - query_positions[..., :, None], -reach, reach) + reach
    keys = np.asarray(layer.position.key_embeddings, "float64")[distance]
    values = np.asarray(layer.position.value_embeddings, "float64")[distance]
    query, key, value = weight["query"], weight["key"], weight["value"]
    scores = query @ key.swapaxes(-1, -2) + np.einsum("bnth,btsh->bnts", query, keys)
    scores = np.where(mask, scores / np.sqrt(query.shape[-1]), -np.inf)
    attention = np.exp(scores - scores.max(-1, keepdims=True))
    attention /= attention.sum(-1, keepdims=True)
    context = attention @ value + np.einsum("bnts,btsh->bnth", attention, values)
    kernel, bias = (np.asarray(w, "float64") for w in layer.output_dense.weights)
    return np.einsum("bnth,nhd->btd", context, kernel) + bias


def randomized(layer, width):
    layer.build((None, None, width), (None, None, width))
    rng = np.random.default_rng(1)
    layer.set_weights([rng.normal(0, 0.4, w.shape) for w in layer.weights])
    return layer


@pytest.mark.parametrize("length", [1, 4, 19])
@pytest.mark.parametrize("causal", [False, True])
def test_formula(length, causal):
    layer = randomized(MultiHeadAttention(3, 4, value_dim=5, position=ShawRelative(max_distance=3)), 8)
    x = np.random.default_rng(0).normal(size=(2, length, 8)).astype("float32")
    places = np.stack([np.arange(length), 3 * np.arange(length) + 100])
    mask = np.tri(length, dtype=bool) if causal else np.ones((length, length), bool)
    expected = dense_formula(layer, x, places, places, mask)
    np.testing.assert_allclose(layer(x, x, positions=places, use_causal_mask=causal), expected, atol=1e-5)
    expected = dense_formula(layer, x, places[:1], places[:1], mask)
    np.testing.assert_allclose(layer(x, x, use_causal_mask=causal), expected, atol=1e-5)


def test_inside_windows():
    position = ShawRelative(max_distance=2)
    whole = randomized(MultiHeadAttention(2, 4, position=position, sliding_window=4), 8)
    local = MultiHeadAttention(2, 4, position=position, mechanism=LocalAttention(4))
    x = np.random.default_rng(0).normal(size=(2, 11, 8)).astype("float32")
    local.build(x.shape, x.shape)
    weights = {w.path.split("/", 1)[1]: w for w in whole.weights if "shaw" not in w.path}
    for weight in local.weights:
        if "shaw" not in weight.path:
            weight.assign(weights[weight.path.split("/", 1)[1]])
    np.testing.assert_allclose(local(x, x), whole(x, x), atol=1e-5)


def test_refused():
    with pytest.raises(ValueError, match="max_distance"):
        ShawRelative(max_distance=0)
    assert "values" not in ShawRelative(use_values=False).needs
    assert SoftmaxAttention.supports >= ShawRelative().needs
