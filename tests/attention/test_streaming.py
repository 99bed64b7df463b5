"""Sinks and a window against softmax attention with their mask, and the cache that goes on against the paper's positions."""

import numpy as np
import pytest

from keras_transformer.attention import MultiHeadAttention, SoftmaxAttention, StreamingAttention, Visibility
from keras_transformer.positions import Rotary

WINDOW, SINKS = 4, 2


def heads(length, seed=0):
    return np.random.default_rng(seed).normal(size=(3, 2, length, 4, 8)).astype("float32")


def visible(length, window, sinks, causal=True):
    """The mask of the window and the sinks, `(T, S)`."""
    slots = np.arange(length)
    distances = slots[:, None] - slots
    return ((distances >= 0) | (not causal)) & ((np.abs(distances) < window) | (slots < sinks))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("window, sinks", [(2, 0), (2, 1), (4, 2), (3, 9), (40, 4)])
def test_is_softmax_with_the_mask_of_sinks_and_window(window, sinks, causal):
    for length in (1, 2, 7, 19):
        query, key, value = heads(length)
        slots = np.arange(length, dtype="int32")
        padding = np.arange(length) < np.array([[length], [max(1, length - 3)]])
        for kept in (None, padding):
            masks = {"query_mask": kept, "key_mask": kept}
            plain = Visibility.from_slots(slots, slots, causal=causal, **masks)
            mask = visible(length, window, sinks, causal)
            masked = Visibility.from_slots(slots, slots, attention_mask=mask, **masks)
            output = StreamingAttention(window, sinks)(query, key[:, :, :2], value[:, :, :2], visibility=plain)
            expected = SoftmaxAttention()(query, key[:, :, :2], value[:, :, :2], visibility=masked)
            np.testing.assert_allclose(output, expected, atol=1e-6)


def rolling(layer, x):
    """StreamingLLM, token by token: a list of what is kept, with positions counted inside it, in float64."""
    kernels = [np.asarray(weight, "float64") for weight in layer.weights]
    query, key, value = (np.einsum("td,dnh->tnh", x.astype("float64"), kernel) for kernel in kernels[:3])
    kept, outputs = [], []
    for t in range(len(x)):
        kept.append(t)
        if len(kept) > SINKS + WINDOW:
            del kept[SINKS]
        places = np.arange(len(kept))
        q, k = turned(query[t], places[-1]), np.stack([turned(key[at], p) for at, p in zip(kept, places, strict=True)])
        scores = np.einsum("nh,snh->ns", q, k) / np.sqrt(q.shape[-1])
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        context = np.einsum("ns,snh->nh", weights / weights.sum(-1, keepdims=True), value[kept])
        outputs.append(np.einsum("nh,nhd->d", context, kernels[3]))
    return np.stack(outputs)


def turned(x, position):
    angles = position * 50.0 ** -(np.arange(0, x.shape[-1], 2) / x.shape[-1])
    even, odd = x[..., 0::2], x[..., 1::2]
    pairs = [even * np.cos(angles) - odd * np.sin(angles), even * np.sin(angles) + odd * np.cos(angles)]
    return np.stack(pairs, axis=-1).reshape(x.shape)


def made():
    mechanism = StreamingAttention(WINDOW, SINKS)
    layer = MultiHeadAttention(2, 6, mechanism=mechanism, position=Rotary(50.0), use_bias=False)
    layer.build((None, None, 10), (None, None, 10))
    rng = np.random.default_rng(3)
    for weight in layer.weights:
        weight.assign(rng.normal(0, 0.5, weight.shape))
    return layer


@pytest.mark.parametrize("sizes", [None, [1] * 30, [13, 1, 1, 15], [2, 3, 25]])
def test_positions_are_those_inside_the_cache(sizes):
    """30 tokens with a cache of 6, whole, in chunks and one by one, are the paper's rolling cache."""
    layer, x = made(), np.random.default_rng(1).normal(size=(2, 30, 10)).astype("float32")
    expected = np.stack([rolling(layer, row) for row in x])
    if sizes is None:
        np.testing.assert_allclose(layer(x, x, use_causal_mask=True), expected, atol=1e-5)
        return
    cache, start = layer.init_cache(2, max_length=3), 0
    shapes = {name: tuple(tensor.shape) for name, tensor in cache.items()}
    assert shapes == {
        "recent_keys": (2, WINDOW - 1, 2, 6),
        "recent_values": (2, WINDOW - 1, 2, 6),
        "sink_keys": (2, 2, SINKS, 6),
        "sink_values": (2, 2, SINKS, 6),
    }
    for size in sizes:
        part = x[:, start : start + size]
        output, cache = layer(part, part, cache=cache, cache_index=np.int32(start))
        np.testing.assert_allclose(output, expected[:, start : start + size], atol=1e-5)
        start += size


def test_differs_from_a_window_and_from_positions_in_the_text():
    layer, x = made(), np.random.default_rng(1).normal(size=(1, 30, 10)).astype("float32")
    streamed = np.asarray(layer(x, x, use_causal_mask=True))
    for mask in (visible(30, WINDOW, 0), visible(30, WINDOW, SINKS)):
        dense = MultiHeadAttention(2, 6, position=Rotary(50.0), use_bias=False)
        dense.build(x.shape, x.shape)
        dense.set_weights(layer.get_weights())
        assert np.abs(np.asarray(dense(x, x, attention_mask=mask)) - streamed)[:, 8:].max() > 1e-2


def test_far_in_an_endless_text_angles_are_exact():
    """Slots near ten million, whose own angles would be off by half a radian in float32."""
    layer, x = made(), np.random.default_rng(1).normal(size=(1, 12, 10)).astype("float32")
    outputs = []
    for start in (20, 10_000_019):
        cache = layer.init_cache(1, max_length=1)
        _, cache = layer(x[:, :5], x[:, :5], cache=cache, cache_index=np.int32(0))
        output, _ = layer(x[:, 5:], x[:, 5:], cache=cache, cache_index=np.int32(start))
        outputs.append(np.asarray(output))
    np.testing.assert_allclose(*outputs, atol=1e-6)


@pytest.mark.parametrize("options", [{"window": 1}, {"num_sinks": -1}])
def test_refuses(options):
    with pytest.raises(ValueError, match="window must be at least 2"):
        StreamingAttention(**options)
