"""LSH attention against the reference, against a loop over rounds and tokens, and against full attention."""

from pathlib import Path

import numpy as np
import pytest

from keras_transformer.attention import LSHAttention, MultiHeadAttention, Visibility

DATA = Path(__file__).parents[1] / "data"


def test_reference():
    """The reference ran in float64: in float32 it loses precision where it merges rounds."""
    golden = np.load(DATA / "reformer.npz")
    x, prefix = golden["outputs/lsh_input"], "params/encoder.layers.1.attention.self_attention"
    mechanism = LSHAttention(num_buckets=4, chunk_length=8, num_rounds=2, attend_across_buckets=True)
    layer = MultiHeadAttention(2, 8, use_bias=False, mechanism=mechanism)
    layer.build(x.shape, x.shape)
    mechanism.rotations.assign(golden["outputs/rotations"].reshape(2, 8, 4))
    layer.query_dense.kernel.assign(golden[f"{prefix}.query_key.weight"].T.reshape(16, 2, 8))
    layer.value_dense.kernel.assign(golden[f"{prefix}.value.weight"].T.reshape(16, 2, 8))
    layer.output_dense.kernel.assign(np.eye(16).reshape(2, 8, 16))  # The saved context has no output projection.
    buckets = np.asarray(mechanism.buckets(layer.query_dense(x))).transpose(0, 2, 3, 1)
    np.testing.assert_array_equal(buckets + np.array([0, 4])[:, None], golden["outputs/lsh_buckets"])
    np.testing.assert_allclose(layer(x, x, use_causal_mask=True), golden["outputs/lsh_context"], atol=1e-5)


def by_loops(mechanism, query, value, mask, causal):
    """The formula in float64: for each round the tokens in their order, then one query at a time."""
    buckets, size = np.asarray(mechanism.buckets(query)), mechanism.chunk_length
    query, output = query.astype(float), np.zeros(value.shape)
    for b, h in np.ndindex(query.shape[0], query.shape[2]):
        tokens = np.flatnonzero(mask[b])
        totals = np.zeros(query.shape[1])
        for r in range(mechanism.num_rounds):
            order = sorted(tokens, key=lambda i: (buckets[b, i, h, r], i))
            for rank, i in enumerate(order):
                before, after = mechanism.chunks_before, mechanism.chunks_after
                first = rank - before * size if causal else (rank // size - before) * size
                last = rank + 1 if causal else (rank // size + 1 + after) * size
                keys = [j for j in order[max(first, 0) : last] if buckets[b, j, h, r] == buckets[b, i, h, r]]
                scores = query[b, keys, h] @ query[b, i, h] / np.linalg.norm(query[b, keys, h], axis=1)
                weights = np.exp(scores) * [1e-40 if j == i else 1.0 for j in keys]
                output[b, i, h] += weights @ value[b, keys, h]
                totals[i] += weights.sum()
        output[b, tokens, h] /= totals[tokens, None]
    return output


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("chunk_length, neighbors", [(1, (1, 0)), (4, (1, 0)), (50, (1, 0)), (4, (2, 1)), (3, (0, 2))])
def test_any_length_is_the_formula(chunk_length, neighbors, causal):
    rng = np.random.default_rng(0)
    mechanism = LSHAttention(4, chunk_length, 3, seed=0, chunks_before=neighbors[0], chunks_after=neighbors[1])
    for length in (1, 6, 33):
        query, value = (rng.normal(size=(2, length, 2, width)).astype("float32") for width in (4, 3))
        mask = rng.uniform(size=(2, length)) > 0.3
        for key_mask in (None, mask):
            slots = np.arange(length, dtype="int32")
            visibility = Visibility.from_slots(slots, slots, causal=causal, key_mask=key_mask)
            output = mechanism(query, query, value, visibility=visibility)
            expected = by_loops(mechanism, query, value, mask if key_mask is not None else mask | True, causal)
            np.testing.assert_allclose(output, expected, atol=1e-5)


@pytest.mark.parametrize("neighbors", [(0, 0), (2, 1), (0, 9)])
def test_across_buckets_all_rounds_are_one_ring_of_chunks(neighbors):
    """As in transformers: a chunk that is reached twice counts twice."""
    (before, after), size, rng = neighbors, 4, np.random.default_rng(0)
    mechanism = LSHAttention(4, size, 3, True, seed=0, chunks_before=before, chunks_after=after)
    query, value = (rng.normal(size=(1, 12, 1, width)).astype("float32") for width in (5, 2))
    found = mechanism(query, query, value)
    buckets, query, value = np.asarray(mechanism.buckets(query))[0, :, 0], query[0, :, 0].astype(float), value[0, :, 0]
    keys = query / np.linalg.norm(query, axis=1, keepdims=True)
    chunks = np.concatenate([np.argsort(buckets[:, r], kind="stable") for r in range(3)]).reshape(-1, size)
    sums, totals = np.zeros(value.shape), np.zeros((12, 1))
    for number, chunk in enumerate(chunks):
        seen = np.concatenate([chunks[(number + offset) % len(chunks)] for offset in range(-before, after + 1)])
        weights = np.exp(query[chunk] @ keys[seen].T) * np.where(chunk[:, None] == seen, 1e-40, 1.0)
        sums[chunk] += weights @ value[seen]
        totals[chunk] += weights.sum(1, keepdims=True)
    np.testing.assert_allclose(found[0, :, 0], sums / totals, atol=1e-5)


@pytest.mark.parametrize("neighbors", [(1, 0), (2, 1)])
@pytest.mark.parametrize("across", [False, True])
def test_padding_anywhere_changes_nothing(across, neighbors):
    """Hidden tokens leave the others in the very chunks that they form alone, in the wrap between rounds too."""
    mechanism = LSHAttention(4, 3, 2, across, chunks_before=neighbors[0], chunks_after=neighbors[1])
    layer = MultiHeadAttention(2, 4, mechanism=mechanism)
    rng = np.random.default_rng(0)
    x, mask = rng.normal(size=(2, 20, 8)).astype("float32"), rng.uniform(size=(2, 20)) > 0.4
    padded = np.asarray(layer(x, x, query_mask=mask, value_mask=mask))
    for row in range(2):
        alone = x[row : row + 1, mask[row]]
        np.testing.assert_allclose(layer(alone, alone)[0], padded[row, mask[row]], atol=1e-6)


@pytest.mark.parametrize("before", [1, 2])
def test_few_and_many_new_tokens_read_the_cache_alike(before):
    mechanism = LSHAttention(num_buckets=4, chunk_length=3, num_rounds=2, chunks_before=before)
    layer = MultiHeadAttention(2, 4, mechanism=mechanism, position="rotary")
    x = np.random.default_rng(0).normal(size=(2, 45, 8)).astype("float32")
    whole = np.asarray(layer(x, x, use_causal_mask=True))
    cache, index = layer.init_cache(2, max_length=50), 0
    for size in (20, 1, 3, 21):
        part = x[:, index : index + size]
        output, cache = layer(part, part, cache=cache, cache_index=np.int32(index))
        np.testing.assert_allclose(output, whole[:, index : index + size], atol=1e-5)
        index += size


def test_error_falls_with_the_budget():
    """Against attention of the same scores to all keys: one chunk is it, more and longer ones come nearer."""
    rng = np.random.default_rng(0)
    query, value = (rng.normal(size=(1, 256, 2, 8)).astype("float32") for _ in range(2))
    query = query * 2
    exact = np.asarray(LSHAttention(2, 256, 1, attend_across_buckets=True)(query, query, value))
    scores = np.einsum("btnh,bsnh->bnts", query, query / np.linalg.norm(query, axis=-1, keepdims=True)).astype(float)
    scores[:, :, np.arange(256), np.arange(256)] = -1e5
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    np.testing.assert_allclose(exact, np.einsum("bnts,bsnh->btnh", weights, value), atol=1e-5)
    errors = []
    for chunk_length, num_rounds in ((16, 1), (16, 8), (64, 8)):
        output = LSHAttention(8, chunk_length, num_rounds, attend_across_buckets=True, seed=0)(query, query, value)
        errors.append(np.square(output - exact).mean())
    assert errors[0] > 1.5 * errors[1] > 1.5**2 * errors[2]


def test_what_it_cannot_do_is_refused():
    with pytest.raises(ValueError, match="even"):
        LSHAttention(num_buckets=3)
    x = np.zeros((1, 4, 8), "float32")
    with pytest.raises(ValueError, match="same number of heads"):
        MultiHeadAttention(2, 4, num_key_value_heads=1, mechanism="lsh")(x, x)
    layer = MultiHeadAttention(2, 4, mechanism=LSHAttention(attend_across_buckets=True))
    with pytest.raises(ValueError, match="'cache'"):
        layer(x, x, cache=layer.init_cache(1, 8), cache_index=0)


def test_several_numbers_of_buckets_are_one_number_of_many():
    mechanism = LSHAttention(num_buckets=(2, 4), num_rounds=3, seed=0)
    query = np.random.default_rng(0).normal(size=(2, 9, 2, 5)).astype("float32")
    mechanism.build(query.shape, query.shape, query.shape)
    rotations = np.asarray(mechanism.rotations).reshape(2, 5, 3, 3)
    sides = np.einsum("btnh,nhrc->btnrc", query, rotations)
    first, second = sides[..., :1], sides[..., 1:]
    buckets = [np.concatenate([own, -own], axis=-1).argmax(axis=-1) for own in (first, second)]
    np.testing.assert_array_equal(mechanism.buckets(query), buckets[0] + 2 * buckets[1])
    assert mechanism.num_buckets == 8
    assert LSHAttention.from_config(mechanism.get_config()).bucket_factors == (2, 4)
    with pytest.raises(ValueError, match="even"):
        LSHAttention(num_buckets=(2, 3))
