"""Each feed-forward against its formula in float64."""

import json
import math

import numpy as np
import pytest

from keras_transformer.feedforward import (
    ACTIVATIONS,
    ClampedSwiGLU,
    DenseFeedForward,
    GatedFeedForward,
    MixtureOfExperts,
)

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


def clamped(gate, hidden, alpha, limit):
    gate, hidden = np.minimum(gate, limit), np.clip(hidden, -limit, limit)
    return (hidden + 1) * gate / (1 + np.exp(-alpha * gate))


def test_clamped_swiglu_is_its_formula():
    x = np.random.default_rng(0).normal(size=(2, 3, 5)).astype("float32")
    layer = GatedFeedForward(7, activation=ClampedSwiGLU(alpha=1.2, limit=0.8), use_bias=True)
    layer.build(x.shape)
    rng = np.random.default_rng(1)
    for weight in layer.weights:
        weight.assign(rng.normal(size=weight.shape))
    by_path = {weight.path.split("/", 1)[-1]: np.asarray(weight, "float64") for weight in layer.weights}
    gate, hidden = (x @ by_path[f"{name}/kernel"] + by_path[f"{name}/bias"] for name in ("gate", "hidden"))
    assert np.any(gate > 0.8)
    assert np.any(hidden > 0.8)
    assert np.any(hidden < -0.8)
    inner = clamped(gate, hidden, 1.2, 0.8)
    np.testing.assert_allclose(layer(x), inner @ by_path["output/kernel"] + by_path["output/bias"], atol=1e-5)
    restored = GatedFeedForward.from_config(json.loads(json.dumps(layer.get_config())))
    assert (restored.activation.alpha, restored.activation.limit) == (1.2, 0.8)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: ClampedSwiGLU(limit=0), "limit must be above 0"),
        (lambda: ClampedSwiGLU(alpha=float("nan")), "alpha must be above 0"),
        (lambda: DenseFeedForward(4, activation=ClampedSwiGLU()), "has no gate"),
        (lambda: MixtureOfExperts(4, gated=False, activation=ClampedSwiGLU()), "has no gate"),
    ],
)
def test_what_clamped_swiglu_cannot_be(make, message):
    with pytest.raises(ValueError, match=message):
        make()
