"""Each feed-forward against its formula in float64."""

import math

import numpy as np
import pytest

from keras_transformer.feedforward import ACTIVATIONS, DenseFeedForward, GatedFeedForward

erf = np.vectorize(math.erf)

FORMULAS = {
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: 0.5 * x * (1 + erf(x / np.sqrt(2))),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "quick_gelu": lambda x: x / (1 + np.exp(-1.702 * x)),
    "silu": lambda x: x / (1 + np.exp(-x)),
}


def randomized(layer, x):
    layer.build(x.shape)
    rng = np.random.default_rng(1)
    for weight in layer.weights:
        weight.assign(rng.normal(size=weight.shape))
    return [np.asarray(weight, "float64") for weight in layer.weights]


def test_every_activation_has_a_formula():
    assert set(FORMULAS) == set(ACTIVATIONS)


@pytest.mark.parametrize("activation", FORMULAS)
def test_dense(activation):
    x = np.random.default_rng(0).normal(size=(2, 3, 4))
    layer = DenseFeedForward(6, activation=activation)
    w1, b1, w2, b2 = randomized(layer, x)
    expected = FORMULAS[activation](x @ w1 + b1) @ w2 + b2
    np.testing.assert_allclose(layer(x), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("activation", FORMULAS)
def test_gated(activation):
    x = np.random.default_rng(0).normal(size=(2, 3, 4))
    layer = GatedFeedForward(6, activation=activation)
    gate, hidden, output = randomized(layer, x)
    expected = (FORMULAS[activation](x @ gate) * (x @ hidden)) @ output
    np.testing.assert_allclose(layer(x), expected, rtol=1e-5, atol=1e-5)


def test_exact_and_tanh_gelu_differ():
    x = np.linspace(-3, 3, 50)
    assert 1e-4 < np.abs(FORMULAS["gelu"](x) - FORMULAS["gelu_tanh"](x)).max() < 1e-3


@pytest.mark.parametrize("cls", [DenseFeedForward, GatedFeedForward])
def test_refuses_no_width(cls):
    with pytest.raises(ValueError, match="intermediate_dim"):
        cls(0)
