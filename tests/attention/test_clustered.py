"""Clustered attention against the reference for its clusters, against loops, and against full attention."""

from pathlib import Path

import numpy as np
import pytest

from keras_transformer.attention import ClusteredAttention, ImprovedClusteredAttention, SoftmaxAttention, Visibility

DATA = Path(__file__).parents[1] / "data"


def heads(length, key_heads=4, seed=0):
    rng = np.random.default_rng(seed)
    return tuple(rng.normal(size=(2, length, n, 6)).astype("float32") for n in (4, key_heads, key_heads))


@pytest.mark.parametrize("key_mask", [True, False])
def test_reference_for_its_clusters(key_mask):
    golden = np.load(DATA / "clustered_attention.npz")
    arrays = [golden[f"inputs/{name}"] for name in "qkv"]
    mask = golden["inputs/key_mask"] if key_mask else None
    assert golden["inputs/key_mask"].all()
    clustered = ClusteredAttention(num_clusters=4).attend_clusters(
        *arrays, golden["outputs/clusters_of_clustered"], mask
    )
    np.testing.assert_allclose(clustered, golden["outputs/y_clustered"], atol=1e-6)
    improved = ImprovedClusteredAttention(num_clusters=4, top_k=6, block_size=4)
    output = improved.attend_clusters(*arrays, golden["outputs/clusters_of_improved"], mask)
    np.testing.assert_allclose(output, golden["outputs/y_improved"], atol=1e-6)


def by_loops(query, key, value, clusters, mask, top_k=None):
    """The formula in float64, one cluster of one head at a time."""
    query, key, value = (x.astype(float) for x in (query, key, value))
    output, group = np.zeros(query.shape), query.shape[2] // key.shape[2]
    for b, h in np.ndindex(query.shape[0], query.shape[2]):
        keys, values = key[b, mask[b], h // group], value[b, mask[b], h // group]
        for cluster in np.unique(clusters[b, h][mask[b]]):
            members = np.flatnonzero(clusters[b, h] == cluster)
            scores = query[b, members, h].mean(0) @ keys.T
            weights = softmax(scores)
            best = np.argsort(-scores)[: top_k or 0]
            rest = np.delete(weights, best) @ np.delete(values, best, axis=0)
            for i in members:
                own = softmax(query[b, i, h] @ keys[best].T) @ values[best] if top_k else 0
                output[b, i, h] = weights[best].sum() * own + rest
    return output


def softmax(scores):
    weights = np.exp((scores - scores.max()) / np.sqrt(6))
    return weights / weights.sum()


@pytest.mark.parametrize("top_k", [None, 1, 5])
def test_any_length_is_the_formula(top_k):
    for length, key_heads in ((1, 4), (9, 2), (40, 1)):
        query, key, value = heads(length, key_heads)
        mask = np.random.default_rng(1).uniform(size=(2, length)) > 0.3
        mask[0, 0] = True
        if top_k is None:
            mechanism = ClusteredAttention(num_clusters=5, bits=8, seed=0)
        else:
            mechanism = ImprovedClusteredAttention(num_clusters=5, bits=8, top_k=top_k, block_size=3, seed=0)
        visibility = Visibility(query_mask=mask, key_mask=mask)
        output = mechanism(query, key, value, visibility=visibility)
        clusters = np.asarray(mechanism.clusters(query, mask))
        np.testing.assert_array_equal(clusters == 5, np.broadcast_to(~mask[:, None], clusters.shape))
        np.testing.assert_allclose(output, by_loops(query, key, value, clusters, mask, top_k), atol=2e-6)


def test_the_top_keys_are_those_of_largest_scores_where_weights_are_0():
    query, key, value = heads(40)
    query *= 300
    mask = np.ones((2, 40), bool)
    mechanism = ImprovedClusteredAttention(num_clusters=5, bits=8, top_k=3, block_size=3, seed=0)
    output = mechanism(query, key, value, visibility=Visibility(query_mask=mask, key_mask=mask))
    expected = by_loops(query, key, value, np.asarray(mechanism.clusters(query, mask)), mask, 3)
    np.testing.assert_allclose(output, expected, atol=1e-3)


def test_with_all_keys_it_is_full_attention():
    query, key, value = heads(37)
    mask = np.random.default_rng(1).uniform(size=(2, 37)) > 0.3
    expected = SoftmaxAttention()(query, key, value, visibility=Visibility(query_mask=mask, key_mask=mask))
    for top_k in (37, 60):  # More than there are, too.
        mechanism = ImprovedClusteredAttention(num_clusters=3, top_k=top_k, block_size=8)
        output = mechanism(query, key, value, visibility=Visibility(query_mask=mask, key_mask=mask))
        np.testing.assert_allclose(output, expected, atol=2e-6)


def test_padding_anywhere_changes_no_cluster():
    query, _, _ = heads(40)
    mask = np.random.default_rng(1).uniform(size=(2, 40)) > 0.4
    mechanism = ClusteredAttention(num_clusters=6, bits=10, seed=0)
    mechanism(query, query, query)
    padded = np.asarray(mechanism.clusters(query, mask))
    for row in range(2):
        alone = np.asarray(mechanism.clusters(query[row : row + 1, mask[row]]))
        np.testing.assert_array_equal(alone[0], padded[row][:, mask[row]])


def test_k_means_finds_what_is_there():
    """Queries around three directions, far apart: three clusters, whatever their order."""
    rng = np.random.default_rng(0)
    kinds = rng.integers(3, size=60)
    query = (np.eye(3)[kinds] * 9 + rng.normal(scale=0.1, size=(60, 3))).astype("float32").reshape(1, 60, 1, 3)
    mechanism = ClusteredAttention(num_clusters=12, bits=64, seed=0)
    mechanism(query, query, query)
    clusters = np.asarray(mechanism.clusters(query))[0, 0]
    for kind in range(3):
        others = set(clusters[kinds != kind])
        assert not others & set(clusters[kinds == kind])


def test_error_falls_with_the_budget():
    query, key, value = heads(256)
    exact = SoftmaxAttention()(query * 2, key, value)
    errors = []
    for num_clusters, top_k in ((4, 8), (64, 8), (64, 128)):
        mechanism = ImprovedClusteredAttention(num_clusters, bits=32, top_k=top_k, seed=0)
        errors.append(float(np.square(np.asarray(mechanism(query * 2, key, value)) - np.asarray(exact)).mean()))
    assert errors[0] > 1.2 * errors[1] > 1.2**2 * errors[2]
