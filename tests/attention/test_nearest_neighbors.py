"""The index of vectors, and attention to what it finds."""

import numpy as np
import pytest

from keras_transformer.attention import (
    MultiHeadAttention,
    RetrievalAttention,
    attend_to_neighbors,
)
from keras_transformer.retrieval import NearestNeighbors


def vectors(count, width=16, seed=0):
    return np.random.default_rng(seed).normal(size=(count, width)).astype("float32")


@pytest.mark.parametrize("chunk_size", [3, 16, 1000])
def test_exact_search_is_a_sort(chunk_size):
    states, queries = vectors(57), vectors(6, seed=1).reshape(2, 3, 16)
    index = NearestNeighbors(chunk_size=chunk_size)
    index.add(states[:20])
    index.add(states[20:])
    assert len(index) == 57
    products = queries @ states.T
    for top_k in (1, 5, 57, 80):
        scores, ids = index.search(queries, top_k)
        expected = np.argsort(-products, axis=-1)[..., :top_k]
        np.testing.assert_array_equal(ids, expected)
        np.testing.assert_allclose(scores, np.take_along_axis(products, expected, -1), atol=1e-5)
    np.testing.assert_array_equal(index.vectors([[3, 56], [19, 20]]), states[[[3, 56], [19, 20]]])


def test_vectors_stay_on_disk(tmp_path):
    states = vectors(40)
    np.save(tmp_path / "states.npy", states)
    index = NearestNeighbors(chunk_size=7)
    index.add(np.load(tmp_path / "states.npy", mmap_mode="r"))
    assert isinstance(index._parts[0], np.memmap)
    np.testing.assert_array_equal(index.search(states[:5], 1)[1], np.argmax(states[:5] @ states.T, axis=1)[:, None])


@pytest.mark.parametrize("backend", ["faiss", "usearch"])
def test_libraries_find_nearly_all(backend):
    pytest.importorskip(backend)
    states, queries = vectors(3000), vectors(50, seed=1)
    exact, quick = NearestNeighbors(), NearestNeighbors(backend)
    for index in (exact, quick):
        index.add(states[:1000])
        index.add(states[1000:])
    (scores, expected), (found_scores, found) = (index.search(queries, 10) for index in (exact, quick))
    shared = [len(set(ours) & set(theirs)) for ours, theirs in zip(found, expected, strict=True)]
    assert np.mean(shared) > 9.5
    same = found == expected
    np.testing.assert_allclose(found_scores[same], scores[same], atol=1e-4)


@pytest.mark.parametrize("key_value_heads, use_bias", [(4, True), (2, True), (1, False)])
def test_one_index_serves_every_head(key_value_heads, use_bias):
    states, x = vectors(30), vectors(10, seed=1).reshape(2, 5, 16)
    index = NearestNeighbors()
    index.add(states)
    for top_k, mechanism in ((30, "softmax"), (4, RetrievalAttention(top_k=4, block_size=7))):
        layer = MultiHeadAttention(4, 8, mechanism=mechanism, num_key_value_heads=key_value_heads, use_bias=use_bias)
        layer.build(x.shape, (None, 30, 16))
        rng = np.random.default_rng(2)
        layer.set_weights([rng.normal(0, 0.3, w.shape) for w in layer.get_weights()])
        expected = layer(x, np.stack([states, states]))
        np.testing.assert_allclose(attend_to_neighbors(layer, x, index, top_k), expected, atol=1e-5)


def test_refused():
    index = NearestNeighbors()
    with pytest.raises(ValueError, match="empty"):
        index.search(vectors(1), 1)
    index.add(vectors(3))
    with pytest.raises(ValueError, match="with the same D"):
        index.add(vectors(3, width=4))
    with pytest.raises(ValueError, match="exact, faiss, faiss_compressed, usearch"):
        NearestNeighbors("no_such")
    layer = MultiHeadAttention(2, 4, position="rotary")
    layer.build((None, None, 16), (None, None, 16))
    with pytest.raises(ValueError, match="position"):
        attend_to_neighbors(layer, vectors(2).reshape(1, 2, 16), index)
