"""Each scoring function against its formula in float64, with grouped heads and with differing widths."""

import numpy as np
import pytest

from keras_transformer.attention import SCORINGS, SoftmaxAttention

B, T, S, N, K, H = 2, 3, 4, 4, 2, 5


def arrays(key_width=H, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(B, T, N, H)), rng.normal(size=(B, S, K, key_width))


def each_pair(score, query, key):
    """`score(q, k, query head, key slot)` for every pair; key head j serves N/K consecutive query heads."""
    scores = np.zeros((B, N, T, S))
    for b, n, t, s in np.ndindex(B, N, T, S):
        scores[b, n, t, s] = score(query[b, t, n], key[b, s, n // (N // K)], n, s)
    return scores


def check(layer, score, key_width=H):
    query, key = arrays(key_width)
    np.testing.assert_allclose(layer(query, key), each_pair(score, query, key), atol=2e-6)


def made(name, key_width=H, **options):
    layer = SCORINGS[name](**options)
    layer.build((B, T, N, H), (B, S, K, key_width))
    rng = np.random.default_rng(1)
    for weight in layer.weights:
        weight.assign(rng.normal(size=weight.shape))
    return layer, [np.asarray(weight, "float64") for weight in layer.weights]


def test_dot():
    check(SCORINGS["dot"](), lambda q, k, n, s: q @ k)


def test_scaled_dot():
    check(SCORINGS["scaled_dot"](), lambda q, k, n, s: q @ k / np.sqrt(H))


def test_cosine():
    layer, (log_temperature,) = made("cosine")
    check(
        layer,
        lambda q, k, n, s: q @ k / np.linalg.norm(q) / np.linalg.norm(k) / np.exp(log_temperature[n, 0]),
    )


def test_cosine_temperature_starts_where_asked():
    layer = SCORINGS["cosine"](temperature=0.25)
    query, key = arrays()
    expected = each_pair(lambda q, k, n, s: q @ k / np.linalg.norm(q) / np.linalg.norm(k) / 0.25, query, key)
    np.testing.assert_allclose(layer(query, key), expected, atol=2e-6)


def test_bilinear_of_differing_widths():
    layer, (kernel,) = made("bilinear", key_width=7)
    check(layer, lambda q, k, n, s: q @ kernel[n] @ k, key_width=7)


def test_additive_of_differing_widths():
    layer, (query_kernel, key_kernel, score_kernel) = made("additive", key_width=7, units=6)
    check(
        layer,
        lambda q, k, n, s: np.tanh(q @ query_kernel[n] + k @ key_kernel[n]) @ score_kernel[n, :, 0],
        key_width=7,
    )


def test_location_ignores_the_key():
    layer, (kernel,) = made("location", max_sequence_length=6)
    check(layer, lambda q, k, n, s: q @ kernel[n, :, s])


def test_location_refuses_more_keys_than_slots():
    layer = SCORINGS["location"](max_sequence_length=3)
    with pytest.raises(ValueError, match="4 keys"):
        layer(*arrays())


def test_bahdanau_alignment_of_one_head():
    """The mechanism by itself is Bahdanau's: weights are the softmax of the energies, the context their mean."""
    layer = SoftmaxAttention(scoring=SCORINGS["additive"](units=3))
    rng = np.random.default_rng(0)
    query, annotations = rng.normal(size=(1, 1, 1, 4)), rng.normal(size=(1, 5, 1, 6))
    context, weights = layer(query, annotations, annotations, return_attention_scores=True)
    w, u, v = (np.asarray(weight, "float64")[0] for weight in layer.weights)
    energies = np.tanh(query[0, 0] @ w + annotations[0, :, 0] @ u) @ v[:, 0]
    expected = np.exp(energies) / np.exp(energies).sum()
    np.testing.assert_allclose(np.asarray(weights)[0, 0, 0], expected, atol=1e-6)
    np.testing.assert_allclose(np.asarray(context)[0, 0, 0], expected @ annotations[0, :, 0], atol=1e-6)


@pytest.mark.parametrize("scale", [None, 0.7])
def test_soft_capped_dot(scale):
    factor = 1 / np.sqrt(H) if scale is None else scale
    check(SCORINGS["soft_capped_dot"](cap=1.5, scale=scale), lambda q, k, n, s: 1.5 * np.tanh(q @ k * factor / 1.5))


def test_a_cap_that_is_none():
    with pytest.raises(ValueError, match="cap must be positive"):
        SCORINGS["soft_capped_dot"](cap=0.0)
