"""Scans against loops, in one graph for every length."""

import keras
import numpy as np
import pytest

from keras_transformer.recurrence import associative_scan, linear_scan


def affine(earlier, later):
    """Two steps of `h = a h + x` in one."""
    return earlier[0] * later[0], later[0] * earlier[1] + later[1]


def stepwise(a, x):
    h, states = np.zeros_like(x[:, 0]), []
    for index in range(x.shape[1]):
        h = a[:, index] * h + x[:, index]
        states.append(h)
    return np.stack(states, axis=1)


@pytest.mark.parametrize("length", [1, 2, 3, 16, 17, 300])
def test_any_length_is_the_loop(length):
    rng = np.random.default_rng(length)
    a, x = rng.uniform(0.5, 1.0, (2, length, 3)).astype("float32"), rng.normal(size=(2, length, 3)).astype("float32")
    states = associative_scan(affine, (a, x), fills=(1.0, 0.0))[1]
    np.testing.assert_allclose(states, stepwise(a, x), atol=1e-5)
    apply, square = (lambda a, x: (a[0] * x[0],)), (lambda a: (a[0] * a[0],))
    states = linear_scan(apply, square, (np.float32(0.9),), (x,))[0]
    np.testing.assert_allclose(states, stepwise(np.full_like(a, 0.9), x), atol=1e-5)


def test_what_is_earlier_stays_on_its_side():
    """Of two elements the earlier: the first of all, and never the last."""
    x = np.random.default_rng(0).normal(size=(1, 20, 3)).astype("float32")
    first = associative_scan(lambda a, b: (keras.ops.where(a[0] == 99.0, b[0], a[0]),), (x,), fills=(99.0,))[0]
    np.testing.assert_array_equal(first, np.repeat(x[:, :1], 20, axis=1))


def test_one_graph_serves_every_length_and_gives_gradients():
    inputs = keras.Input((None, 4))
    scan = keras.layers.Lambda(
        lambda x: associative_scan(affine, (keras.ops.sigmoid(x), x), fills=(1.0, 0.0))[1], output_shape=(None, 4)
    )
    dense = keras.layers.Dense(4, kernel_initializer="identity")
    model = keras.Model(inputs, scan(dense(inputs)))
    for length in (1, 5, 40):
        x = np.random.default_rng(0).normal(size=(2, length, 4)).astype("float32")
        expected = stepwise(1 / (1 + np.exp(-x)), x)
        np.testing.assert_allclose(model.predict(x, verbose=0), expected, atol=1e-5)
    model.compile(keras.optimizers.SGD(1e-3), loss="mse")
    target = np.zeros_like(x)
    before = model.evaluate(x, target, verbose=0)
    model.fit(x, target, epochs=3, verbose=0)
    assert model.evaluate(x, target, verbose=0) < before
