"""Attention with a learned sink for each head, against its formula in float64."""

import keras
import numpy as np
import pytest

from keras_transformer.attention import LocalAttention, MultiHeadAttention, SoftmaxAttention, Visibility
from keras_transformer.positions import Rotary

SINKS = np.array([0.7, -1.5, 3.0, 0.0], "float32")


def heads(length, seed=0):
    """Queries of 4 heads, and keys and values of 2."""
    query, key, value = np.random.default_rng(seed).normal(size=(3, 2, length, 4, 8)).astype("float32")
    return query, key[:, :, :2], value[:, :, :2]


def with_sinks(mechanism, sinks=SINKS):
    query, key, value = heads(3)
    mechanism.build(query.shape, key.shape, value.shape)
    getattr(mechanism, "softmax", mechanism).sinks.assign(sinks)
    return mechanism


def expected(query, key, value, mask):
    """Context and weights; `mask` is `(B, T, S)`."""
    key, value = (np.repeat(x.astype("float64"), 2, axis=2) for x in (key, value))
    exponentials = np.exp(np.einsum("btnh,bsnh->bnts", query, key) / np.sqrt(8)) * mask[:, None]
    weights = exponentials / (exponentials.sum(-1, keepdims=True) + np.exp(SINKS.astype("float64"))[:, None, None])
    return np.einsum("bnts,bsnh->btnh", weights, value), weights


def test_formula_with_grouped_heads_and_masks():
    query, key, value = heads(9)
    mask = np.random.default_rng(1).uniform(size=(2, 9, 9)) > 0.4
    mask[:, 3] = False  # This query may attend nothing.
    slots = np.arange(9, dtype="int32")
    for layer_mask, full in ((None, np.ones((2, 9, 9), bool)), (mask, mask)):
        visibility = Visibility.from_slots(slots, slots, attention_mask=layer_mask)
        layer = with_sinks(SoftmaxAttention(use_sinks=True))
        context, weights = expected(query, key, value, full)
        np.testing.assert_allclose(layer(query, key, value, visibility=visibility), context, atol=1e-6)
        found, scores = layer(query, key, value, visibility=visibility, return_attention_scores=True)
        np.testing.assert_allclose(found, context, atol=1e-6)
        np.testing.assert_allclose(scores, weights, atol=1e-6)
        assert np.all(np.asarray(scores).sum(-1) < 0.999)
    np.testing.assert_array_equal(np.asarray(found)[:, 3], 0)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window, block_size", [(1, None), (4, 1), (5, 16), (40, 7)])
def test_window_is_the_masked_formula(window, block_size, causal):
    layer = with_sinks(LocalAttention(window, block_size, use_sinks=True))
    for length in (1, 7, 19):
        query, key, value = heads(length)
        slots = np.arange(length, dtype="int32")
        distance = slots[:, None] - slots
        mask = (np.abs(distance) < window) & ((distance >= 0) | (not causal))
        output = layer(query, key, value, visibility=Visibility.from_slots(slots, slots, causal=causal))
        context, _ = expected(query, key, value, np.broadcast_to(mask, (2, length, length)))
        np.testing.assert_allclose(output, context, atol=1e-6)


@pytest.mark.parametrize("mechanism", [SoftmaxAttention(use_sinks=True), LocalAttention(4, use_sinks=True)])
def test_whole_is_chunked_is_stepwise(mechanism):
    layer = MultiHeadAttention(4, 6, num_key_value_heads=2, mechanism=mechanism, position=Rotary())
    x = np.random.default_rng(0).normal(size=(2, 13, 8)).astype("float32")
    layer.build(x.shape, x.shape)
    getattr(layer.mechanism, "softmax", layer.mechanism).sinks.assign(SINKS)
    whole = layer(x, x, use_causal_mask=True)
    for sizes in ((13,), (5, 1, 7), (1,) * 13):
        cache, outputs = layer.init_cache(2, 13), []
        for start, size in zip(np.cumsum((0, *sizes)), sizes, strict=False):
            tokens = x[:, start : start + size]
            output, cache = layer(tokens, tokens, cache=cache, cache_index=np.int32(start))
            outputs.append(np.asarray(output))
        np.testing.assert_allclose(np.concatenate(outputs, axis=1), whole, atol=1e-5)


def test_a_sink_far_below_all_scores_changes_nothing_and_one_far_above_takes_everything():
    query, key, value = heads(5)
    plain = SoftmaxAttention()(query, key, value)
    low = with_sinks(SoftmaxAttention(use_sinks=True), np.full(4, -1e9, "float32"))
    np.testing.assert_allclose(low(query, key, value), plain, atol=1e-6)
    for dtype in ("float32", "mixed_float16"):
        high = with_sinks(SoftmaxAttention(use_sinks=True, dtype=dtype), np.full(4, 1e4, "float32"))
        np.testing.assert_array_equal(high(query, key, value), np.zeros(query.shape))


def test_gradients_of_masked_queries_are_finite():
    layer = MultiHeadAttention(4, 6, mechanism=SoftmaxAttention(use_sinks=True))
    x, nothing = keras.Input((5, 8)), np.zeros((2, 5, 5), bool)
    nothing[:, :2] = True
    mask = keras.Input((5, 5), dtype="bool")
    model = keras.Model([x, mask], layer(x, x, attention_mask=mask))
    model.compile(keras.optimizers.SGD(1.0), loss="mse")
    batch = np.random.default_rng(0).normal(size=(2, 5, 8)).astype("float32")
    model.train_on_batch([batch, nothing], batch)
    assert all(np.all(np.isfinite(np.asarray(weight))) for weight in model.weights)
    assert np.all(np.asarray(layer.mechanism.sinks) != 0)


def test_the_fused_kernel_is_refused():
    with pytest.raises(ValueError, match="no sinks"):
        SoftmaxAttention(flash_attention=True, use_sinks=True)
