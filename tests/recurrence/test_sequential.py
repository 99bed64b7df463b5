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


@pytest.mark.parametrize("count", [1, 2, 7])
def test_steps_in_their_order(count):
    x, y = arrays(count)
    (state, total), outputs = sequential_scan(step, (ops.zeros((3, 2)), ops.zeros(())), (x, y))
    for found, value in zip((state, total, outputs), expected(x, y), strict=True):
        np.testing.assert_allclose(found, value, atol=1e-5)


class Scan(keras.layers.Layer):
    def call(self, x):
        return sequential_scan(step, (ops.zeros((3, 2)), ops.zeros(())), (x, x))[1]

    def compute_output_shape(self, shape):
        return shape


@pytest.mark.parametrize("jit_compile", [False, True])
def test_one_graph_for_any_number_of_steps(jit_compile):
    symbolic = keras.Input((3, 2))
    model = keras.Model(symbolic, Scan()(symbolic))
    model.compile(jit_compile=jit_compile)
    for count in (1, 4, 6):
        x, _ = arrays(count)
        np.testing.assert_allclose(model.predict_on_batch(x), expected(x, x)[2], atol=1e-5)
