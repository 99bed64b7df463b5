"""Convolutions over tokens, and attention beside them, against the reference's figures and plain loops."""

from pathlib import Path

import numpy as np
import pytest

from keras_transformer.attention import (
    DynamicConvolution,
    LightweightConvolution,
    LongShortRangeAttention,
    MultiHeadAttention,
)

DATA = Path(__file__).parents[1] / "data"


def linear(golden, name):
    return [golden[f"params/{name}.weight"].T, golden[f"params/{name}.bias"]]


def batch_first(x):
    return np.ascontiguousarray(x.transpose(1, 0, 2))


def test_reference_of_lightweight_convolution():
    golden = np.load(DATA / "lightweight_conv.npz")
    x = batch_first(golden["inputs/x"])
    layer = LightweightConvolution(2, kernel_size=3, gated=False)
    layer.build(x.shape)
    layer._input_dense.set_weights(linear(golden, "linear1"))
    layer.output_dense.set_weights(linear(golden, "linear2"))
    layer._filters.assign(golden["params/weight"][:, 0])
    np.testing.assert_allclose(layer(x, x), batch_first(golden["outputs/y"]), atol=1e-6)


def without_projections(layer, width):
    for dense in (layer._input_dense, layer.output_dense):
        dense.set_weights([np.eye(width), np.zeros(width)])


def test_reference_of_dynamic_convolution():
    golden = np.load(DATA / "dynamic_conv.npz")
    x = batch_first(golden["inputs/x"])
    layer = DynamicConvolution(2, kernel_size=3, gated=False)
    layer.build(x.shape)
    without_projections(layer, 16)
    layer._filter_dense.set_weights([golden["params/weight_linear.weight"].T])
    np.testing.assert_allclose(layer(x, x), batch_first(golden["outputs/y"]), atol=1e-6)


@pytest.mark.parametrize("causal", [False, True])
def test_dynamic_convolution_with_a_filter_bias_is_its_formula(causal):
    x = np.random.default_rng(0).normal(size=(2, 7, 4)).astype("float32")
    layer = DynamicConvolution(2, kernel_size=3, gated=False, use_filter_bias=True)
    layer.build(x.shape)
    without_projections(layer, 4)
    kernel, bias = (np.random.default_rng(1).normal(size=shape).astype("float32") for shape in ((4, 6), (6,)))
    layer._filter_dense.set_weights([kernel, bias])
    filters = np.exp((x.astype("float64") @ kernel + bias).reshape(2, 7, 2, 3))
    filters /= filters.sum(-1, keepdims=True)
    before = 2 if causal else 1
    padded = np.pad(x, ((0, 0), (before, 2 - before), (0, 0)))
    expected = sum(np.repeat(filters[..., k], 2, axis=2) * padded[:, k : k + 7] for k in range(3))
    np.testing.assert_allclose(layer(x, x, use_causal_mask=causal), expected, atol=1e-6)


def test_reference_of_both_branches():
    golden = np.load(DATA / "lsra_multibranch.npz")
    x, seen = batch_first(golden["inputs/x"]), ~golden["inputs/padding_mask"]
    layer = LongShortRangeAttention(MultiHeadAttention(2, 4), LightweightConvolution(2, 3, gated=False))
    layer.build(x.shape)
    weights = []
    for name in ("q", "k", "v"):
        kernel, bias = linear(golden, f"branches.0.{name}_proj")
        weights += [kernel.reshape(8, 2, 4), bias.reshape(2, 4)]
    kernel, bias = linear(golden, "branches.0.out_proj")
    layer.attention.set_weights([*weights, kernel.reshape(2, 4, 8), bias])
    layer.convolution._input_dense.set_weights(linear(golden, "branches.1.linear1"))
    layer.convolution.output_dense.set_weights(linear(golden, "branches.1.linear2"))
    layer.convolution._filters.assign(golden["params/branches.1.weight"][:, 0])
    output = np.asarray(layer(x, x, query_mask=seen, value_mask=seen))
    expected = batch_first(golden["outputs/y"])
    compared = seen.copy()
    compared[:, 1:] &= seen[:, 1:]
    # The reference zeroes padding before the first projection, whose bias then leaks from the first padded token.
    leaks = seen & ~np.concatenate([seen[:, 1:], np.ones((2, 1), bool)], axis=1)
    np.testing.assert_allclose(output[compared][:, :8], expected[compared][:, :8], atol=1e-6)
    np.testing.assert_allclose(output[seen & ~leaks], expected[seen & ~leaks], atol=1e-6)
    assert np.sum(leaks) == np.sum(~seen.all(axis=1))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def convolved(x, filters, left):
    """Token by token, tap by tap; filters `(B, T, N, kernel_size)`; in float64."""
    batch, length, width = x.shape
    heads, taps = filters.shape[2:]
    filters = np.repeat(filters, width // heads, axis=2)
    output = np.zeros((batch, length, width))
    for t in range(length):
        for k in range(taps):
            if 0 <= t + k - left < length:
                output[:, t] += filters[:, t, :, k] * x[:, t + k - left]
    return output


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kernel_size", [2, 5, 40])
@pytest.mark.parametrize("cls", [LightweightConvolution, DynamicConvolution])
def test_any_length_is_the_sum_over_taps(cls, kernel_size, causal):
    rng = np.random.default_rng(0)
    layer = cls(3, kernel_size)
    for length in (1, 31, 85):
        x = rng.normal(size=(2, length, 6)).astype("float32")
        mask = rng.uniform(size=(2, length)) > 0.2
        output = layer(x, x, query_mask=mask, use_causal_mask=causal)
        hidden = x.astype("float64") @ np.asarray(layer._input_dense.kernel)
        hidden = hidden[..., :6] / (1 + np.exp(-hidden[..., 6:])) * mask[:, :, None]
        if cls is DynamicConvolution:
            filters = (hidden @ np.asarray(layer._filter_dense.kernel)).reshape(2, length, 3, kernel_size)
        else:
            filters = np.broadcast_to(np.asarray(layer._filters), (2, length, 3, kernel_size))
        left = kernel_size - 1 if causal else (kernel_size - 1) // 2
        context = convolved(hidden, softmax(filters.astype("float64")), left) * mask[:, :, None]
        np.testing.assert_allclose(output, context @ np.asarray(layer.output_dense.kernel), atol=1e-5)


def test_channels_are_split_and_caches_joined():
    """Each branch sees its own channels alone, and its part of the cache."""
    layer = LongShortRangeAttention(MultiHeadAttention(1, 4), DynamicConvolution(2, 3), attention_dim=2)
    x, changed = np.random.default_rng(0).normal(size=(2, 1, 6, 6)).astype("float32")
    changed[..., :2] = x[..., :2]
    before, after = np.asarray(layer(x, x)), np.asarray(layer(changed, changed))
    np.testing.assert_array_equal(before[..., :2], after[..., :2])
    assert np.abs(before[..., 2:] - after[..., 2:]).min(axis=1).max() > 1e-3
    cache = layer.init_cache(1, 8)
    assert {name: tuple(slab.shape) for name, slab in cache.items()} == {
        "key": (1, 1, 8, 4),
        "value": (1, 1, 8, 4),
        "recent_inputs": (1, 2, 4),
    }
    whole, index = np.asarray(layer(x, x, use_causal_mask=True)), 0
    for size in (3, 1, 2):
        part = x[:, index : index + size]
        output, cache = layer(part, part, cache=cache, cache_index=index)
        np.testing.assert_allclose(output, whole[:, index : index + size], atol=1e-5)
        index += size


def test_what_does_not_fit_is_refused():
    x = np.zeros((1, 3, 6), "float32")
    with pytest.raises(ValueError, match="num_heads=4 must divide the number of channels, 6"):
        LightweightConvolution(4, 3)(x, x)
    with pytest.raises(ValueError, match="kernel_size"):
        DynamicConvolution(2, kernel_size=1)
    with pytest.raises(ValueError, match="Received: 6"):
        LongShortRangeAttention(MultiHeadAttention(1, 4), LightweightConvolution(2, 3), attention_dim=6)(x, x)
    twice = LongShortRangeAttention(LightweightConvolution(1, 3), LightweightConvolution(1, 3))
    twice(x, x)
    with pytest.raises(ValueError, match="recent_inputs"):
        twice.init_cache(1, 8)
