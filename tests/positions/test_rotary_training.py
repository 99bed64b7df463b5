"""The rotation of training has the values and gradients of that of inference, in other operations."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.attention import MultiHeadAttention
from keras_transformer.backend.gradients.vjp import vjp
from keras_transformer.positions import Rotary

X, UPSTREAM = np.random.default_rng(0).normal(size=(2, 2, 5, 3, 8)).astype("float32")
POSITIONS = np.array([[0, 1, 2, 5, 9], [7, 3, 2, 1, 0]])
CASES = {
    "halves": {"layout": "halves"},
    "a part in halves": {"layout": "halves", "rotary_dim": 4},
    "pairs": {"layout": "pairs"},
    "a part in pairs": {"layout": "pairs", "rotary_dim": 4},
    "values and a scaling": {"layout": "halves", "scaling": "yarn", "rotate_values": True},
}


def rotated(position, training):
    """Returns the rotated query, key and value of one tensor, and its gradient, of a traced step."""

    def rotate(x):
        parts = position.rotate_all(x, 2 * x, 3 * x, POSITIONS, POSITIONS[:, ::-1], training=training)
        return ops.concatenate(parts, axis=-1)

    def step(x, upstream):
        value, pullback = vjp(rotate, x)
        return value, *pullback(upstream)

    return [np.array(each) for each in compiled(step)(X, np.concatenate([UPSTREAM] * 3, axis=-1))]


def compiled(function):
    if keras.backend.backend() == "jax":
        import jax

        return jax.jit(function)
    import tensorflow as tf

    return tf.function(function, autograph=False)


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_those_of_inference(name):
    position = Rotary(max_wavelength=50.0, **CASES[name])
    for found, expected in zip(*(rotated(position, training) for training in (True, False)), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_a_gradient_is_rotated_back():
    position = Rotary(layout="halves")

    def gradient(x, upstream):
        _, pullback = vjp(lambda x: position.rotate_all(x, x, x, POSITIONS, POSITIONS, training=True)[0], x)
        return pullback(upstream)[0]

    found = compiled(gradient)(X, UPSTREAM)
    np.testing.assert_allclose(found, position(ops.array(UPSTREAM), positions=-POSITIONS), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "float16"])
def test_the_dtype_is_that_of_the_heads(dtype):
    position, x = Rotary(layout="halves"), ops.cast(X, dtype.removeprefix("mixed_"))
    query = compiled(lambda x: position.rotate_all(x, x, x, POSITIONS, POSITIONS, training=True)[0])(x)
    assert query.dtype == x.dtype
    np.testing.assert_allclose(ops.cast(query, "float32"), position(ops.array(X), POSITIONS), atol=0.05)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="operations of TensorFlow")
@pytest.mark.parametrize("rotary_dim", [None, 4])
def test_a_training_step_fills_no_gradients_of_slices_and_graphs_for_inference_keep_the_slices(rotary_dim):
    import tensorflow as tf

    layer = MultiHeadAttention(2, 8, position=Rotary(layout="halves", rotary_dim=rotary_dim))
    layer.build((2, 4, 16), (2, 4, 16))

    def count(training):
        @tf.function(autograph=False)
        def step(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = layer(x, x, training=training)
            return tape.gradient(y, x)

        types = [op.type for op in step.get_concrete_function(tf.TensorSpec((2, 4, 16))).graph.get_operations()]
        return types.count("StridedSliceGrad"), types.count("Split") + types.count("SplitV")

    slices = 4 if rotary_dim is None else 8  # Two of each rotation, and two that cut off what is not rotated.
    assert count(training=False) == (slices, 0)
    assert count(training=True)[0] == 0
