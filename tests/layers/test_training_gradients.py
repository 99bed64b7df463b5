"""Norms and activations whose gradients are written out: those of Keras's norms, and of the formulas of activations."""

import math

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.backend.gradients.vjp import vjp
from keras_transformer.backend.variable_values import VariableValues
from keras_transformer.layers.activations import gelu_tanh, in_training
from keras_transformer.layers.norms import NORMS, LayerNormalization, RMSNormalization
from keras_transformer.layers.projection import Projection

RANDOM = np.random.default_rng(0)
X = 2 * RANDOM.normal(size=(3, 4, 6)) + 0.5
# JAX has float32 by default, and Keras on JAX computes norms in it.
DTYPE, TOLERANCE = ("float64", 1e-10) if keras.backend.backend() == "tensorflow" else ("float32", 5e-6)
UPSTREAM = RANDOM.normal(size=X.shape)
LAYERS = {
    "layer_norm": (LayerNormalization, keras.layers.LayerNormalization, {"epsilon": 0.3}),
    "without scale": (LayerNormalization, keras.layers.LayerNormalization, {"epsilon": 0.3, "scale": False}),
    "without offset": (LayerNormalization, keras.layers.LayerNormalization, {"epsilon": 0.3, "center": False}),
    "without weights": (LayerNormalization, keras.layers.LayerNormalization, {"center": False, "scale": False}),
    "other axis": (LayerNormalization, keras.layers.LayerNormalization, {"axis": 1}),
    "rms_norm": (RMSNormalization, keras.layers.RMSNormalization, {"epsilon": 0.3}),
}


def numpy(x):
    return ops.convert_to_numpy(ops.cast(x, "float32" if DTYPE == "float32" else "float64"))


def gradients(layer, x, upstream, **arguments):
    """Returns the outputs, and the gradients of the input and the weights, as arrays."""

    values = VariableValues([layer])

    def outputs(x, *weights):
        with values.scope(weights):
            return layer(x, **arguments)

    value, pullback = vjp(outputs, x, *values.weights)
    return [numpy(each) for each in (value, *pullback(upstream))]


@pytest.mark.parametrize("name", LAYERS)
def test_a_norm_has_the_values_and_gradients_of_the_layer_of_keras(name):
    ours, theirs, options = LAYERS[name]
    # In a scope of values, Keras on TensorFlow casts the weights of an RMS norm to float32.
    dtype, tolerance = ("float32", 5e-6) if ours is RMSNormalization else (DTYPE, TOLERANCE)
    layers = [cls(dtype=dtype, **options) for cls in (ours, theirs)]
    for layer in layers:
        layer.build(X.shape)
        layer.set_weights([np.random.default_rng(1).normal(size=each.shape) for each in layer.get_weights()])
    found = gradients(layers[0], ops.array(X, dtype), ops.array(UPSTREAM, dtype), training=True)
    expected = gradients(layers[1], ops.array(X, dtype), ops.array(UPSTREAM, dtype))
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=10 * tolerance, atol=tolerance)


@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
def test_a_norm_in_bfloat16_is_computed_in_float32(name):
    layer = NORMS[name](dtype="bfloat16")
    layer.build((1000,))
    x = ops.cast(RANDOM.normal(size=(2, 1000)) + 8.0, "bfloat16")
    trained, used = layer(x, training=True), layer(x)
    assert keras.backend.standardize_dtype(trained.dtype) == "bfloat16"
    # A rounding of bfloat16 apart; a variance computed in bfloat16 would be wrong by several.
    np.testing.assert_allclose(numpy(trained), numpy(used), rtol=2**-7, atol=2**-8)
    found = gradients(layer, x, ops.ones_like(x), training=True)
    # The sum of the outputs does not depend on the scale or the mean of a row.
    assert np.abs(found[1]).max() < (1e-5 if name == "layer_norm" else 1.0)


def normal(x):
    """Returns the probability and the density of the standard normal distribution."""
    return 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2))), np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)


def gelu_formula(x):
    probability, density = normal(x)
    return x * probability, probability + x * density


def gelu_tanh_formula(x):
    rate = math.sqrt(2 / math.pi)
    tanh = np.tanh(rate * (x + 0.044715 * x**3))
    slope = (1 - tanh**2) * rate * (1 + 3 * 0.044715 * x**2)
    return 0.5 * x * (1 + tanh), 0.5 * (1 + tanh) + 0.5 * x * slope


def silu_formula(x):
    sigmoid = 1 / (1 + np.exp(-x))
    return x * sigmoid, sigmoid + x * sigmoid * (1 - sigmoid)


@pytest.mark.parametrize(
    ("activation", "formula"),
    [(keras.activations.gelu, gelu_formula), (gelu_tanh, gelu_tanh_formula), (keras.activations.silu, silu_formula)],
)
def test_an_activation_has_the_values_and_gradients_of_its_formula(activation, formula):
    assert in_training(activation) is not activation
    x, upstream = np.linspace(-6, 6, 97), np.linspace(1, 2, 97)
    expected, derivative = formula(x)
    value, pullback = vjp(in_training(activation), ops.array(x, DTYPE))
    # The erf of XLA has an error of 6e-7.
    np.testing.assert_allclose(numpy(value), expected, rtol=1e-6, atol=5e-6)
    np.testing.assert_allclose(
        numpy(pullback(ops.array(upstream, DTYPE))[0]), upstream * derivative, rtol=1e-6, atol=5e-6
    )


def test_a_projection_uses_the_form_for_training_in_training_only():
    layer = Projection("btd,df->btf", output_shape=(None, 5), activation="gelu")
    x = np.ones((1, 2, 3), "float32")
    np.testing.assert_allclose(numpy(layer(x, training=True)), numpy(layer(x)), rtol=1e-5)
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        graphs = {
            training: tf.function(lambda x, training=training: layer(x, training=training)).get_concrete_function(
                tf.TensorSpec((1, 2, 3))
            )
            for training in (True, False)
        }
        counts = {
            key: [op.type for op in each.graph.get_operations()].count("IdentityN") for key, each in graphs.items()
        }
        assert counts == {True: 1, False: 0}
