"""Linear attention against the quadratic formula, and the reference's figures."""

from pathlib import Path

import numpy as np
import pytest

from keras_transformer.attention import FEATURE_MAPS, LinearAttention, MultiHeadAttention, Visibility

DATA = Path(__file__).parents[1] / "data"


def visibility(length, **options):
    slots = np.arange(length, dtype="int32")
    return Visibility.from_slots(slots, slots, **options)


def heads(length, seed=0):
    query, key, value = np.random.default_rng(seed).normal(size=(3, 2, length, 4, 6)).astype("float32")
    return query, key[:, :, :2], value[:, :, :2, :5]


def dense(kernel, query, key, value, key_mask=None, causal=False):
    """The weighted mean, with weights `kernel(q, k)`, of every pair; in float64."""
    key, value = (np.repeat(x.astype("float64"), 2, axis=2) for x in (key, value))
    weights = kernel(query.astype("float64"), key)  # (B, N, T, S)
    if key_mask is not None:
        weights = weights * key_mask[:, None, None]
    if causal:
        weights = np.tril(weights)
    total = weights.sum(-1, keepdims=True)
    return np.einsum("bnts,bsnh->btnh", weights / np.where(total == 0, 1, total), value)


def of_features(features):
    return lambda query, key: np.einsum("btnm,bsnm->bnts", features(query), features(key))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def second_order(query, key):
    scores = np.einsum("btnh,bsnh->bnts", query, key) / np.sqrt(query.shape[-1])
    return 1 + scores + scores**2 / 2


KERNELS = {
    "elu": of_features(lambda x: np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))),
    "relu": of_features(lambda x: np.maximum(x, 0)),
    "square": of_features(np.square),
    "softmax": of_features(lambda x: np.concatenate([softmax(x), softmax(-x)], axis=-1)),
    "taylor": second_order,
}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", FEATURE_MAPS)
def test_every_feature_map_is_the_quadratic_formula(name, causal):
    for length in (1, 4, 11):
        query, key, value = heads(length)
        mask = np.random.default_rng(1).uniform(size=(2, length)) > 0.3
        for key_mask in (None, mask):
            visible = visibility(length, causal=causal, key_mask=key_mask)
            output = LinearAttention(name, epsilon=1e-12, chunk_size=4)(query, key, value, visibility=visible)
            expected = dense(KERNELS[name], query, key, value, key_mask, causal)
            np.testing.assert_allclose(output, expected, atol=1e-5)


def test_reference():
    golden = np.load(DATA / "linear_attention.npz")
    operands = [golden[f"inputs/{name}"] for name in "qkv"]
    mask = golden["inputs/key_mask"]
    whole = LinearAttention()(*operands, visibility=visibility(12, key_mask=mask))
    np.testing.assert_allclose(whole, golden["outputs/y"], atol=1e-6)
    for chunk_size in (1, 5, 128):
        causal = LinearAttention(chunk_size=chunk_size)(
            *operands, visibility=visibility(12, key_mask=mask, causal=True)
        )
        np.testing.assert_allclose(causal, golden["outputs/y_causal"], atol=1e-6)


def test_cache_is_sums_that_do_not_see_padding():
    """Rows of 3 and 7 tokens, padded with large numbers, then one token each."""
    layer = MultiHeadAttention(2, 4, mechanism=LinearAttention(chunk_size=2), position="rotary")
    x = np.random.default_rng(0).normal(size=(2, 8, 8)).astype("float32")
    whole = np.asarray(layer(x, x, use_causal_mask=True))
    padded, lengths = x[:, :7].copy(), np.array([3, 7], "int32")
    padded[0, 3:] = 1e3
    cache = layer.init_cache(2, max_length=1000)
    assert {name: tuple(tensor.shape) for name, tensor in cache.items()} == {"state": (2, 2, 4, 5)}
    mask = np.arange(7) < lengths[:, None]
    _, cache = layer(padded, padded, query_mask=mask, cache=cache, cache_index=0)
    token = np.stack([x[0, 3:4], x[1, 7:8]])
    output, _ = layer(token, token, cache=cache, cache_index=lengths)
    np.testing.assert_allclose(np.asarray(output)[:, 0], [whole[0, 3], whole[1, 7]], atol=1e-5)


def test_causality_between_two_sequences_is_refused():
    query, key, value = heads(5)
    with pytest.raises(ValueError, match="5 queries, 3 keys"):
        LinearAttention()(query, key[:, :3], value[:, :3], visibility=visibility(5, causal=True))


def test_dropout_drops_whole_keys():
    """With one key dropped for all queries alike, the output is that of its value being zero."""
    query, key, value = heads(3)
    layer = LinearAttention(epsilon=1e-12, dropout=0.5, seed=4)
    dropped = np.asarray(layer(query, key, value, training=True))
    weights = KERNELS["elu"](query, np.repeat(key, 2, axis=2))
    weights /= weights.sum(-1, keepdims=True)
    # Solve for what became of each key: 0, or twice its value.
    values = np.linalg.lstsq(weights[0, 0], dropped[0, :, 0], rcond=None)[0]
    ratios = (values / value[0, :, 0]).round(3)
    assert np.all(np.isin(ratios, [0.0, 2.0]))
    np.testing.assert_array_equal(ratios, ratios[:, :1] * np.ones((1, 5)))
    assert len(np.unique(ratios)) == 2
