"""Disentangled attention: its terms pair by pair, its sharing, its cost."""

import keras
import numpy as np
import pytest

from graph_cost import layer_costs
from keras_transformer import load_model
from keras_transformer.attention import DisentangledAttention, attention_maps
from keras_transformer.positions import RelativeEmbedding
from laws import randomize

WIDTH, HEADS, KEY_DIM = 6, 2, 4


def make(**options):
    options = {"relative_embedding": RelativeEmbedding(5, num_buckets=4, norm="layer_norm")} | options
    layer = DisentangledAttention(HEADS, KEY_DIM, **options)
    layer.build((None, None, WIDTH))
    return randomize(layer)


def tokens(length=9):
    return np.random.default_rng(0).normal(size=(2, length, WIDTH)).astype("float32")


def projected(layer, name, x):
    dense = getattr(layer, f"_{name}_dense")
    return np.einsum("...d,dnh->...nh", x, np.asarray(dense.kernel)) + np.asarray(dense.bias)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("terms", [["c2p"], ["p2c"], ["c2p", "p2c"]])
def test_scores_pair_by_pair(terms, shared):
    layer, x = make(terms=terms, share_projections=shared), tokens()
    query, key, value = (projected(layer, name, x) for name in ("query", "key", "value"))
    positions = np.arange(9)
    # A vector for each pair, which the layer never builds.
    rows = np.asarray(layer.relative_embedding.rows(positions, positions))[0]
    vectors = np.asarray(layer.relative_embedding.vectors()[0])[0][rows]
    prefix = "" if shared else "position_"
    scores = np.einsum("binh,bjnh->bnij", query, key)
    if "c2p" in terms:
        scores += np.einsum("binh,ijnh->bnij", query, projected(layer, f"{prefix}key", vectors))
    if "p2c" in terms:
        scores += np.einsum("bjnh,ijnh->bnij", key, projected(layer, f"{prefix}query", vectors))
    scores = np.exp(scores / np.sqrt(KEY_DIM * (1 + len(terms))))
    weights = scores / scores.sum(-1, keepdims=True)
    context = np.einsum("bnij,bjnh->binh", weights, value)
    expected = np.einsum("binh,nhd->bid", context, np.asarray(layer.output_dense.kernel))
    output, found = layer(x, x, return_attention_scores=True)
    np.testing.assert_allclose(found, weights, atol=2e-6)
    np.testing.assert_allclose(output, expected + np.asarray(layer.output_dense.bias), atol=1e-5)


def test_only_distances_count():
    layer, x = make(), tokens()
    np.testing.assert_allclose(layer(x, x, positions=np.arange(7, 16)), layer(x, x), atol=1e-6)
    assert np.abs(np.asarray(layer(x, x, positions=np.arange(9)[::-1].copy()) - layer(x, x))).max() > 1e-3


def test_layers_share_an_embedding_before_and_after_a_file(tmp_path):
    embedding = RelativeEmbedding(3)
    x = keras.Input((None, WIDTH))
    y = DisentangledAttention(HEADS, KEY_DIM, embedding)(x, x)
    model = keras.Model(x, DisentangledAttention(HEADS, KEY_DIM, embedding)(y, y))
    randomize(model)
    model.save(tmp_path / "model.keras")
    for each in (model, load_model(tmp_path / "model.keras")):
        assert len([weight for weight in each.weights if weight.shape == (6, WIDTH)]) == 1
        first, second = (layer for layer in each.layers if isinstance(layer, DisentangledAttention))
        assert first.relative_embedding is second.relative_embedding
        np.testing.assert_array_equal(each(tokens()), model(tokens()))


def test_maps_of_a_model():
    x = keras.Input((None, WIDTH))
    model = keras.Model(x, make(name="mixer")(x, x))
    (scores,) = attention_maps(model)(tokens()).values()
    assert scores.shape == (2, HEADS, 9, 9)
    np.testing.assert_allclose(np.sum(scores, axis=-1), 1, atol=1e-5)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="counts TensorFlow graphs")
def test_no_tensor_has_a_vector_for_each_pair():
    """With many rows and with few, the largest tensor is one of scores, or of products with the rows of the table."""
    for length, distance in ((64, 4), (16, 64)):
        layer = DisentangledAttention(HEADS, 32, RelativeEmbedding(distance))
        for costs in layer_costs(layer, (1, length, 64)).values():
            assert costs.largest <= 4 * HEADS * length * max(length, 2 * distance), costs.where


@pytest.mark.parametrize("terms", [[], ["p2p"], "c2p"])
def test_terms_that_are_none(terms):
    with pytest.raises(ValueError, match="terms must be a list of 'c2p' and 'p2c'"):
        DisentangledAttention(2, 4, RelativeEmbedding(3), terms=terms)


def test_shared_projections_need_one_width():
    layer = DisentangledAttention(2, 4, RelativeEmbedding(3), share_projections=True)
    with pytest.raises(ValueError, match="queries and keys of one width"):
        layer(np.ones((1, 3, 6)), np.ones((1, 3, 5)))
