"""Steps that wait for one another against a loop of numpy; gradients are tested with `MemoryStack`."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.recurrence.sequential import sequential_scan


def step(index, carry, x, y):
    state, count = carry
    state = 0.5 * state + x * ops.cast(index + 1, "float32")
    return (state, count + ops.sum(y)), state + y


def expected(x, y):
    state, outputs = np.zeros(x.shape[1:], "float32"), []
    for index in range(len(x)):
        state = 0.5 * state + x[index] * (index + 1)
        outputs.append(state + y[index])
    return state, y.sum(), np.stack(outputs)


def arrays(count):
    return np.random.default_rng(count).normal(size=(2, count, 3, 2)).astype("float32")


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("count", [1, 2, 7])
def test_steps_in_their_order(count, training):
    x, y = arrays(count)
    (state, total), outputs = sequential_scan(step, (ops.zeros((3, 2)), ops.zeros(())), (x, y), training)
    for found, value in zip((state, total, outputs), expected(x, y), strict=True):
        np.testing.assert_allclose(found, value, atol=1e-5)


class Scan(keras.layers.Layer):
    def call(self, x, training=None):
        return sequential_scan(step, (ops.zeros((3, 2)), ops.zeros(())), (x, x), training)[1]

    def compute_output_shape(self, shape):
        return shape


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="elsewhere there is one way to do it")
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("jit_compile", [False, True])
def test_gradients_of_both_ways(jit_compile, training):
    """Row j goes into output i by 0.5^(i - j) (j + 1), and into its own output once more."""
    import tensorflow as tf

    x, weights = arrays(6)
    layer = Scan()

    @tf.function(jit_compile=jit_compile, input_signature=[tf.TensorSpec((6 if jit_compile else None, 3, 2))] * 2)
    def gradient(x, weights):
        with tf.GradientTape() as tape:
            tape.watch(x)
            total = tf.reduce_sum(layer(x, training=training) * weights)
        return tape.gradient(total, x)

    i, j = np.mgrid[:6, :6]
    share = np.where(i >= j, 0.5 ** (i - j) * (j + 1), 0) + np.eye(6)
    np.testing.assert_allclose(gradient(x, weights), np.einsum("ij,ibd->jbd", share, weights), atol=1e-5)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_one_graph_for_any_number_of_steps(jit_compile):
    symbolic = keras.Input((3, 2))
    model = keras.Model(symbolic, Scan()(symbolic))
    model.compile(jit_compile=jit_compile)
    for count in (1, 4, 6):
        x, _ = arrays(count)
        np.testing.assert_allclose(model.predict_on_batch(x), expected(x, x)[2], atol=1e-5)
