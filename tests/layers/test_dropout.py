"""Dropout: shares of dropped elements, no pattern among them, and the state of the seed."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.layers.dropout import Dropout

ON_TENSORFLOW = keras.backend.backend() == "tensorflow"


def compiled(function):
    """The function under XLA."""
    if ON_TENSORFLOW:
        import tensorflow as tf

        return tf.function(function, jit_compile=True)
    return function


def traced(function):
    """The function as a graph of TensorFlow's own operations."""
    if ON_TENSORFLOW:
        import tensorflow as tf

        return tf.function(function)
    return function


FORMS = {"xla": compiled, "graph": traced, "eager": lambda function: function}


@pytest.fixture(params=FORMS)
def form(request):
    return FORMS[request.param]


def dropped(layer, form, shape=(37, 211, 129)):
    """Which elements are zero."""
    x = np.full(shape, 2.0, "float32")
    return ops.convert_to_numpy(form(lambda x: layer(x, training=True))(x)) == 0


@pytest.mark.parametrize("rate", [0.03, 0.1, 0.5, 0.9])
def test_share_of_dropped_elements_and_no_correlation_with_neighbors(form, rate):
    zeros = dropped(Dropout(rate, seed=5), form).astype("float64")
    error = np.sqrt(rate * (1 - rate) / zeros.size)
    assert abs(zeros.mean() - rate) < 5 * error
    centered = (zeros - zeros.mean()) / zeros.std()
    for axis in range(3):
        for distance in (1, 2, 7, 16):
            length = zeros.shape[axis]
            first, second = (np.take(centered, np.arange(length - distance) + s, axis) for s in (0, distance))
            assert abs(np.mean(first * second)) < 5 / np.sqrt(first.size)
    # Rows and columns are hashed apart and then together: the four corners of a rectangle are independent too.
    first, second = centered[:, :-3], centered[:, 3:]
    assert abs(np.mean(first[..., :-5] * first[..., 5:] * second[..., :-5] * second[..., 5:])) < 5 / np.sqrt(zeros.size)
    # Counts of rows vary as those of a binomial distribution.
    spread = zeros.sum(axis=-1).var() / (129 * rate * (1 - rate))
    assert abs(spread - 1) < 5 * np.sqrt(2 / (37 * 211))


def test_kept_elements_are_scaled_and_the_gradient_follows_the_mask(form):
    if not ON_TENSORFLOW:
        pytest.skip("the gradient is taken by TensorFlow here")
    import tensorflow as tf

    layer, x = Dropout(0.3, seed=2), tf.random.stateless_normal((64, 96), (1, 2))

    def both(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, training=True)
        return y, tape.gradient(y, x)

    y, gradient = (each.numpy() for each in form(both)(x))
    np.testing.assert_allclose(y, np.where(y == 0, 0, x / 0.7), rtol=1e-6)
    np.testing.assert_allclose(gradient, np.where(y == 0, 0, np.float32(1 / 0.7)), rtol=1e-6)


def test_each_call_draws_anew_and_a_seed_repeats_the_draws(form):
    layer = Dropout(0.5, seed=7)
    first, second = dropped(layer, form, (8, 64)), dropped(layer, form, (8, 64))
    assert 0.4 < (first ^ second).mean() < 0.6
    again = Dropout(0.5, seed=7)
    np.testing.assert_array_equal(dropped(again, form, (8, 64)), first)
    other = dropped(Dropout(0.5, seed=8), form, (8, 64))
    assert 0.4 < (first ^ other).mean() < 0.6
    # The state after a call is that of Keras's layer, as in its files.
    keras_layer = keras.layers.Dropout(0.5, seed=7)
    keras_layer(np.ones((8, 64), "float32"), training=True)
    states = [ops.convert_to_numpy(each.seed_generator.state.value) for each in (again, keras_layer)]
    np.testing.assert_array_equal(*states)


def test_noise_shape_and_half_precision(form):
    layer = Dropout(0.4, noise_shape=(None, 1, None), seed=1, dtype="bfloat16")
    zeros = dropped(layer, form, (16, 5, 300))
    assert (zeros == zeros[:, :1]).all()
    assert 0.35 < zeros.mean() < 0.45


def test_lengths_that_vary(form):
    if not ON_TENSORFLOW:
        pytest.skip("lengths are fixed at compilation")
    import tensorflow as tf

    layer = Dropout(0.25, seed=3)
    call = tf.function(
        lambda x: layer(x, training=True),
        jit_compile=form is compiled,
        input_signature=[tf.TensorSpec((None, None, 31))],
    )
    for shape in ((3, 50, 31), (1, 401, 31)):
        assert abs(np.mean(call(tf.ones(shape)).numpy() == 0) - 0.25) < 0.03


def test_without_training_and_at_the_ends_of_the_range():
    x = np.arange(12.0, dtype="float32").reshape(3, 4)
    np.testing.assert_array_equal(ops.convert_to_numpy(Dropout(0.5)(x)), x)
    np.testing.assert_array_equal(ops.convert_to_numpy(Dropout(0.0)(x, training=True)), x)
    np.testing.assert_array_equal(ops.convert_to_numpy(Dropout(1.0)(x, training=True)), np.zeros_like(x))
    with pytest.raises(ValueError, match="between 0 and 1"):
        Dropout(1.5)


def test_config_and_mask_are_those_of_keras():
    layer = Dropout(0.3, noise_shape=(None, 1), seed=4, name="drop")
    again = keras.layers.deserialize(keras.layers.serialize(layer))
    assert (type(again), again.rate, again.noise_shape, again.seed) == (Dropout, 0.3, (None, 1), 4)
    assert again.supports_masking
