"""What a feed-forward keeps for its backward pass; its gradients are those of the form for inference."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.backend.variable_values import VariableValues
from keras_transformer.backend.vjp import vjp
from keras_transformer.feedforward import ClampedSwiGLU, DenseFeedForward, GatedFeedForward

X = np.random.default_rng(0).normal(size=(2, 3, 4))
UPSTREAM = np.random.default_rng(1).normal(size=X.shape)
# JAX has float32 by default.
DTYPE, TOLERANCE = ("float64", 1e-6) if keras.backend.backend() == "tensorflow" else ("float32", 1e-5)
LAYERS = {
    "relu": lambda **options: DenseFeedForward(6, **options),
    "gelu": lambda **options: DenseFeedForward(6, "gelu", **options),
    "with a norm": lambda **options: DenseFeedForward(6, "gelu_tanh", hidden_norm="rms_norm", **options),
    "swiglu": lambda **options: GatedFeedForward(6, **options),
    "geglu with biases": lambda **options: GatedFeedForward(6, "gelu", use_bias=True, **options),
    "clamped swiglu": lambda **options: GatedFeedForward(6, ClampedSwiGLU(limit=1.0), **options),
}


def randomized(layer):
    layer.build(X.shape)
    layer.set_weights([np.random.default_rng(2).normal(size=weight.shape) for weight in layer.get_weights()])
    return layer


def gradients(layer, dtype, training):
    """Returns the outputs, and the gradients of the input and the weights, as arrays, of a traced step."""
    values = VariableValues([layer])

    def outputs(x, *weights):
        with values.scope(weights):
            return ops.cast(layer(x, training=training), dtype)

    def step(x, upstream, *weights):
        value, pullback = vjp(outputs, x, *weights)
        return value, *pullback(upstream)

    found = compiled(step)(ops.array(X, dtype), ops.array(UPSTREAM, dtype), *values.weights)
    return [ops.convert_to_numpy(ops.cast(each, dtype)) for each in found]


def compiled(function):
    if keras.backend.backend() == "jax":
        import jax

        return jax.jit(function)
    import tensorflow as tf

    return tf.function(function, autograph=False)


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_of_training_are_those_of_the_form_for_inference(name):
    # Keras on TensorFlow computes a norm in a scope of values in float32.
    dtype, tolerance = ("float32", 1e-5) if name == "with a norm" else (DTYPE, TOLERANCE)
    layer = randomized(LAYERS[name](dtype=dtype))
    for found, expected in zip(*(gradients(layer, dtype, training) for training in (True, False)), strict=True):
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
        assert np.abs(expected).max() > 0.1


def test_gradients_under_mixed_precision_differ_by_rounding():
    layer = randomized(GatedFeedForward(6, dtype="mixed_bfloat16"))
    for found, expected in zip(*(gradients(layer, "float32", training) for training in (True, False)), strict=True):
        assert np.abs(found - expected).max() < 0.03 * np.abs(expected).max()


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="XLA plans the memory of a JAX program")
@pytest.mark.parametrize(
    ("name", "options", "count"),
    [("gelu", {}, 1), ("swiglu", {}, 2), ("swiglu", {"rank": 2}, 2), ("geglu with biases", {}, 2)],
)
def test_only_the_outputs_of_the_first_projections_are_kept(name, options, count):
    layer = randomized(LAYERS[name]())
    for dense in (layer._gate_dense, layer._hidden_dense, layer._output_dense) if options else ():
        dense.enable_lora(**options)
    assert len(wide_tensors_kept(layer)) == count


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="XLA plans the memory of a JAX program")
def test_with_dropout_the_hidden_layer_is_kept_and_no_number_drawn_again():
    layer = randomized(GatedFeedForward(6, dropout=0.5, seed=3))
    assert len(wide_tensors_kept(layer)) > 2


def wide_tensors_kept(layer):
    """Returns the names of the tensors `(..., 6)` of the forward pass that the backward pass reads."""
    import tensorflow as tf

    boundaries = []

    @tf.function(autograph=False)
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(tf.square(layer(x, training=True)))
        boundaries.append(len(loss.graph.get_operations()))
        return tape.gradient(loss, [x, *layer.trainable_variables])

    operations = step.get_concrete_function(tf.TensorSpec((5, 7, 4))).graph.get_operations()
    forward = {operation.name for operation in operations[: boundaries[-1]]}
    read = [tensor for operation in operations[boundaries[-1] :] for tensor in operation.inputs]
    kept = {source(tensor).name for tensor in read if tensor.op.name in forward}
    return [name for name in kept if operations[0].graph.get_tensor_by_name(name).shape.num_elements() == 5 * 7 * 6]


def source(tensor):
    """The tensor that this one is a view of."""
    while tensor.op.type in ("Identity", "IdentityN", "Reshape"):
        tensor = tensor.op.inputs[tensor.value_index]
    return tensor
