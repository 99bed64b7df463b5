"""Two-stream attention against its formula in float64."""

import numpy as np
import pytest

from keras_transformer.attention import TwoStreamAttention

BATCH, CONTENT, TARGETS, WIDTH, HEADS, KEY_DIM = 2, 6, 3, 8, 2, 4


def made(**options):
    layer = TwoStreamAttention(HEADS, KEY_DIM, **options)
    layer.build((BATCH, CONTENT + TARGETS, WIDTH))
    random = np.random.default_rng(1)
    for variable in layer.trainable_variables:
        variable.assign(random.normal(size=variable.shape))
    return layer


def by_formula(layer, x, mask, places, segments):
    """One query and one key at a time."""
    weights = {variable.path.split("/", 1)[1]: np.asarray(variable, float) for variable in layer.trainable_variables}
    query, key, value = (
        np.einsum("btd,dnh->btnh", x.astype(float), weights[f"{name}/kernel"]) for name in ("query", "key", "value")
    )
    u, v, s = (weights[name] for name in ("position/content_bias", "position/position_bias", "segment_bias"))
    rates = 10000.0 ** (-2 * np.arange(WIDTH // 2) / WIDTH)
    context = np.zeros(query.shape)
    for b, i, n in np.ndindex(query.shape[:3]):
        seen = np.flatnonzero(mask[b, i])
        scores = []
        for j in seen:
            angles = (places[b, i] - places[b, j]) * rates
            distance = np.concatenate([np.sin(angles), np.cos(angles)]) @ weights["position/kernel"][:, n]
            segment = weights["segment_embedding"][int(segments[b, i] != segments[b, j]), n]
            terms = [(u, key[b, j, n]), (v, distance), (s, segment)]
            scores.append(sum((query[b, i, n] + bias[n]) @ other for bias, other in terms) / np.sqrt(KEY_DIM))
        if len(seen):
            chances = np.exp(np.array(scores) - max(scores))
            context[b, i, n] = chances / chances.sum() @ value[b, seen, n]
    return np.einsum("btnh,nhd->btd", context, weights["attention_output/kernel"])


@pytest.mark.parametrize("causal", [False, True])
def test_streams_are_the_formula(causal):
    random = np.random.default_rng(0)
    total = CONTENT + TARGETS
    x = random.normal(size=(BATCH, total, WIDTH)).astype("float32")
    mask = random.random((BATCH, total, CONTENT)) < 0.6
    mask[0, -1] = False  # It sees nothing.
    real = np.ones((BATCH, total), bool)
    real[1, :2] = False  # Padding on the left.
    places = np.concatenate([np.tile(np.arange(CONTENT), (BATCH, 1)), [[4, 0, 2], [5, 3, 2]]], axis=1)
    segments = random.integers(0, 3, (BATCH, total))
    layer = made(causal=causal)
    found = layer(x, x, value_mask=real, attention_mask=mask, positions=places, segment_ids=segments)
    seen = mask & real[:, None, :CONTENT] & real[:, :, None]
    if causal:
        seen &= places[:, None, :CONTENT] <= places[:, :, None]
    np.testing.assert_allclose(found, by_formula(layer, x, seen, places, segments), atol=2e-5)


def test_one_stream_is_the_formula():
    x = np.random.default_rng(0).normal(size=(BATCH, 5, WIDTH)).astype("float32")
    layer = made()
    places, mask = np.tile(np.arange(5), (BATCH, 1)), np.ones((BATCH, 5, 5), bool)
    segments = np.zeros((BATCH, 5), "int32")
    expected = by_formula(layer, x, mask, places, segments)
    np.testing.assert_allclose(layer(x, x), expected, atol=2e-5)
    np.testing.assert_allclose(layer(x, x, segment_ids=segments), expected, atol=2e-5)


def test_segments_without_weights_for_them():
    x = np.ones((1, 3, WIDTH), "float32")
    with pytest.raises(ValueError, match="use_segments"):
        made(use_segments=False)(x, x, segment_ids=np.zeros((1, 3), "int32"))
