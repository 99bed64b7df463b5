"""Convolutions in branches against plain loops."""

import keras
import numpy as np
import pytest

from keras_transformer.attention import BranchedConvolution

WIDTH = 6


def evolved(causal):
    """As in the cells of the Evolved Transformer, small."""
    if causal:
        return BranchedConvolution(
            keras.layers.SeparableConv1D(12, 5, activation="relu"),
            keras.layers.SeparableConv1D(3, 3),
            keras.layers.SeparableConv1D(WIDTH, 4),
        )
    return BranchedConvolution(
        keras.layers.Dense(12, activation="relu"),
        keras.layers.Conv1D(3, 3, activation="relu"),
        keras.layers.SeparableConv1D(3, 5),
    )


def randomized(layer):
    layer.build((None, None, WIDTH))
    for index, weight in enumerate(layer.weights):
        weight.assign(np.random.default_rng(index).normal(0.1, 0.5, weight.shape))
    return layer


def convolved(layer, x, causal):
    """A convolution of one row `(T, C)`, tap by tap."""
    weights = [np.asarray(weight, "float64") for weight in layer.weights]
    kernels, bias = weights[:-1], weights[-1]
    if isinstance(layer, keras.layers.Dense):
        y = x @ kernels[0]
    else:
        taps = len(kernels[0])
        left = taps - 1 if causal else (taps - 1) // 2
        separable = isinstance(layer, keras.layers.SeparableConv1D)
        y = np.zeros((len(x), kernels[0].shape[1] if separable else kernels[0].shape[2]))
        for t, k in np.ndindex(len(x), taps):
            if 0 <= t + k - left < len(x):
                token = x[t + k - left]
                y[t] += token * kernels[0][k, :, 0] if separable else token @ kernels[0][k]
        y = y @ kernels[1][0] if separable else y
    y = y + bias
    return np.maximum(y, 0) if layer.activation is keras.activations.relu else y


def by_loops(layer, x, causal):
    wide, narrow = convolved(layer.wide, x, causal), convolved(layer.narrow, x, causal)
    sums = wide + np.pad(narrow, ((0, 0), (0, wide.shape[1] - narrow.shape[1])))
    gamma, beta = (np.asarray(weight, "float64") for weight in layer._norm.weights)
    sums = (sums - sums.mean(1, keepdims=True)) / np.sqrt(sums.var(1, keepdims=True) + 1e-3) * gamma + beta
    y = convolved(layer.output_convolution, sums, causal)
    return np.pad(y, ((0, 0), (0, WIDTH - y.shape[1])))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("length", [1, 9])
def test_formula(causal, length):
    layer = randomized(evolved(causal))
    x = np.random.default_rng(9).normal(size=(2, length, WIDTH)).astype("float32")
    expected = [by_loops(layer, row, causal) for row in x]
    np.testing.assert_allclose(layer(x, x, use_causal_mask=causal), expected, atol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
def test_padding_is_zero_in_every_convolution(causal):
    layer = randomized(evolved(causal))
    x = np.random.default_rng(9).normal(size=(1, 9, WIDTH)).astype("float32")
    mask = np.arange(9)[None] < 6
    output = np.asarray(layer(x, x, query_mask=mask, value_mask=mask, use_causal_mask=causal))
    np.testing.assert_allclose(output[0, :6], by_loops(layer, x[0, :6], causal), atol=1e-5)


def test_dilated_kernels_reach_further():
    layer = BranchedConvolution(
        keras.layers.Dense(8),
        keras.layers.Conv1D(8, 3, dilation_rate=2),
        keras.layers.DepthwiseConv1D(2),
    )
    with pytest.raises(ValueError, match="nor `output` more than the input"):
        layer.build((None, None, WIDTH))
    x = np.ones((1, 3, 8), "float32")
    layer(x, x)
    assert {name: slab.shape[1] for name, slab in layer.init_cache(1, 5).items()} == {
        "recent_inputs": 4,
        "recent_sums": 1,
    }


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"wide": keras.layers.Conv1D(4, 3, strides=2)}, "stride 1"),
        ({"output": keras.layers.LayerNormalization()}, "output must be one of Dense"),
        ({"output": keras.layers.Dense(4)}, "must have a kernel of 2 tokens or more"),
    ],
)
def test_layers_that_do_not_fit_are_refused(wrong, message):
    layers = {"wide": keras.layers.Dense(4), "narrow": keras.layers.Conv1D(4, 3), "output": keras.layers.Conv1D(4, 3)}
    with pytest.raises(ValueError, match=message):
        BranchedConvolution(**{**layers, **wrong})
