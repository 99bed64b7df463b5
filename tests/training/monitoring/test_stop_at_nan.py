"""Planted faults: each is found at its step and layer, with the weights from before it; on TensorFlow and on JAX."""

import os
import re
import subprocess
import sys

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer import models, tasks, training

RANDOM = np.random.default_rng(0)


class Plus(keras.layers.Layer):
    """Adds a function of the inputs to them."""

    def __init__(self, function, **kwargs):
        super().__init__(**kwargs)
        self.function = function

    def call(self, x):
        return x + self.function(x)


class Scale(keras.layers.Layer):
    """Multiplies with a weight, so that 0 stays 0."""

    def build(self, shape):
        self.scale = self.add_weight(name="scale", shape=(), initializer="ones")

    def call(self, x):
        return self.scale * x


def network(function, **options):
    """Inputs below 0 are 0 at the layer with the function; the others are unchanged."""
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((4,), name="features"),
            layers.Dense(4, "relu", kernel_initializer="identity", name="before"),
            keras.Sequential([Scale(name="scale"), Plus(function, name="faulty")], name="block"),
            layers.LayerNormalization(name="norm"),
            layers.Dropout(0.1, name="dropout", seed=3),
            layers.Dense(1, name="head"),
        ]
    )
    model.compile(**{"optimizer": "adam", "loss": "mse"} | options)
    return model


def rows(steps, batch=4):
    x = RANDOM.uniform(1.0, 2.0, (steps * batch, 4)).astype("float32")
    return x, x[:, :1].copy()


class WeightsBefore(keras.callbacks.Callback):
    """Keeps the state before each step, by reading it after the one before."""

    def __init__(self):
        super().__init__()
        self.states = []

    def on_train_begin(self, logs=None):
        self.states.append(state(self.model))

    def on_train_batch_end(self, batch, logs=None):
        self.states.append(state(self.model))


def state(model):
    optimizer = model.optimizer.variables if model.optimizer.built else []
    return [np.array(ops.convert_to_numpy(each)) for each in [*model.variables, *optimizer]]


def stopped(model, x, y, directory, every=50, batch_size=4, epochs=1, callbacks=()):
    with pytest.raises(training.NonFiniteError) as caught:
        model.fit(
            x,
            y,
            batch_size=batch_size,
            epochs=epochs,
            shuffle=False,
            verbose=0,
            callbacks=[training.StopAtNaN(directory, every=every), *callbacks],
        )
    return caught.value


def assert_replays(error, model, again):
    assert error.path.name == f"nan_step_{error.step}.npz"
    assert training.replay(error.path, again) == error.origin
    for one, other in zip(state(model), state(again), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "compiled",
    [{}, {"jit_compile": True}, {"run_eagerly": True, "jit_compile": False}, {"steps_per_execution": 3}],
)
def test_logarithm_of_zero_in_the_middle_of_a_training(tmp_path, compiled):
    x, y = rows(23)
    x[4 * 17 + 2, 1] = -1.0  # The activation before makes it 0.
    watch = WeightsBefore()
    model = network(ops.log, **compiled)
    error = stopped(model, x, y, tmp_path, every=5, callbacks=[watch])
    assert (error.step, error.origin.stage, error.origin.layer) == (17, "forward", "block/faulty")
    assert "-inf" in error.origin.detail
    assert re.search(r"inputs reach (1\.9|2)", error.origin.detail)
    if "run_eagerly" in compiled:
        for one, other in zip(watch.states[17], state(model), strict=True):
            np.testing.assert_array_equal(one, other)
    assert_replays(error, model, network(ops.log, **compiled))


def test_gradient_of_a_square_root_at_zero(tmp_path):
    x, y = rows(12)
    x[4 * 7, 0] = -1.0
    model = network(ops.sqrt)
    error = stopped(model, x, y, tmp_path, every=4)
    assert (error.step, error.origin.stage, error.origin.layer) == (7, "backward", "block/faulty")
    assert "its inputs" in error.origin.detail
    assert_replays(error, model, network(ops.sqrt))


def test_one_batch_of_many_has_nan(tmp_path):
    x, y = rows(160, batch=1)
    y[137] = np.nan
    error = stopped(network(ops.square), x, y, tmp_path, batch_size=1)
    assert (error.step, error.origin.stage, error.origin.layer) == (137, "data", "y")


def test_overflow_in_float16(tmp_path):
    previous = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_float16")
    try:
        x, y = rows(8)
        x[4 * 5] *= 200  # Its square is above 65,504.
        model = network(ops.square)
        error = stopped(model, x, y, tmp_path, every=3)
    finally:
        keras.config.set_dtype_policy(previous)
    assert (error.step, error.origin.stage, error.origin.layer) == (5, "forward", "block/faulty")
    assert "inf" in error.origin.detail


def test_float16_goes_on_after_infinite_gradients(tmp_path):
    previous = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_float16")
    try:
        x, y = rows(8)
        model = network(
            ops.square, optimizer=keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(), initial_scale=2.0**30)
        )
        model.fit(x, y, epochs=2, verbose=0, callbacks=[training.StopAtNaN(tmp_path, every=3)])
    finally:
        keras.config.set_dtype_policy(previous)
    assert float(model.optimizer.dynamic_scale) < 2.0**30


def test_exploding_learning_rate(tmp_path):
    x, y = rows(40)
    x *= 10
    model = network(ops.square, optimizer=keras.optimizers.SGD(1e12))
    error = stopped(model, x, y, tmp_path, every=10)
    assert error.step < 10
    assert error.origin.stage in ("forward", "loss", "backward", "update")
    assert all(np.isfinite(each).all() for each in model.get_weights())
    assert_replays(error, model, network(ops.square, optimizer=keras.optimizers.SGD(1e12)))


def test_update_that_overflows(tmp_path):
    x, y = rows(4)
    model = network(ops.square, optimizer=keras.optimizers.SGD(np.inf))
    error = stopped(model, x, y, tmp_path)
    assert (error.step, error.origin.stage) == (0, "update")
    assert error.origin.layer == "before/kernel"


def test_loss_of_finite_outputs(tmp_path):
    x, y = rows(4)
    model = network(ops.square, loss=lambda y, y_pred: ops.mean(y_pred) + ops.log(y - y))
    error = stopped(model, x, y, tmp_path)
    assert (error.step, error.origin.stage) == (0, "loss")


@pytest.mark.exhaustive
def test_language_model_names_the_block(tmp_path):
    model = tasks.LanguageModel(models.Decoder(models.Size(1, 8, 2, 16), vocabulary_size=11, max_sequence_length=6))
    model.compile("adam", training.MaskedCrossentropy(), jit_compile=False)
    kernel = next(each for each in model.weights if each.path.endswith("decoder_block_0/feedforward/hidden/kernel"))
    kernel.assign(kernel * np.inf)
    ids = RANDOM.integers(0, 11, (2, 6))
    inputs = {"token_ids": ids, "padding_mask": np.ones_like(ids, bool)}
    error = stopped(model, inputs, ids, tmp_path, batch_size=2)
    assert error.origin.stage == "forward"
    assert error.origin.layer == "decoder_block_0/feedforward/hidden"
    assert "weights reach inf" in error.origin.detail


def test_a_finite_training_is_that_without_the_callback(tmp_path):
    x, y = rows(11)
    plain, watched = network(ops.square), network(ops.square)
    watched.set_weights(plain.get_weights())
    one = plain.fit(x, y, batch_size=4, epochs=3, shuffle=False, verbose=0)
    other = watched.fit(
        x, y, batch_size=4, epochs=3, shuffle=False, verbose=0, callbacks=[training.StopAtNaN(tmp_path, every=4)]
    )
    np.testing.assert_allclose(one.history["loss"], other.history["loss"], rtol=1e-6)
    assert list(tmp_path.iterdir()) == []
    before = watched.train_function
    watched.fit(x, y, batch_size=4, verbose=0)
    assert watched.train_function is before


class LogThenScale(keras.layers.Layer):
    """A layer whose own code fails before an inner layer gets what it computed."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.inner = keras.layers.Rescaling(0.5, name="inner")

    def call(self, x):
        return self.inner(ops.log(x))


def test_code_around_an_inner_layer(tmp_path):
    layers = [LogThenScale(name="outer"), keras.layers.Dense(1, name="head")]
    model = keras.Sequential([keras.Input((2,)), *layers])
    model.compile("adam", "mse")
    error = stopped(model, np.zeros((4, 2)), np.zeros((4, 1)), tmp_path)
    assert (error.origin.stage, error.origin.layer) == ("forward", "outer")


def test_weights_that_were_never_finite(tmp_path):
    x, y = rows(4)
    model = network(ops.square)
    model.layers[0].bias.assign([np.nan] * 4)
    error = stopped(model, x, y, tmp_path)
    assert (error.step, error.origin.layer) == (0, "before")
    assert "weights reach nan" in error.origin.detail


def test_refusals(tmp_path):
    with pytest.raises(ValueError, match="every"):
        training.StopAtNaN(tmp_path, every=0)
    (tmp_path / "other.npz").write_bytes(b"nothing")
    with pytest.raises(training.CorruptCheckpointError, match="other"):
        training.replay(tmp_path / "other.npz", network(ops.square))
    x, y = rows(1)
    y[0] = np.nan
    path = stopped(network(ops.square), x, y, tmp_path).path
    with pytest.raises(training.TrainingCheckpointError, match="variables of another model"):
        training.replay(path, network(ops.square, optimizer="sgd"))
    np.testing.assert_array_equal(training.read_batch(path)[1], y)


@pytest.mark.exhaustive
def test_replay_on_another_backend(tmp_path):
    x, y = rows(8)
    x[4 * 3, 2] = -1.0
    error = stopped(network(ops.log), x, y, tmp_path)
    code = "import sys, test_stop_at_nan as t; print(t.training.replay(sys.argv[1], t.network(t.ops.log)))"
    environment = os.environ | {"KERAS_BACKEND": "jax" if keras.backend.backend() == "tensorflow" else "tensorflow"}
    command = [sys.executable, "-c", code, str(error.path)]
    run = subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment, cwd=os.path.dirname(__file__)
    )
    assert run.returncode == 0, run.stderr[-2000:]
    assert run.stdout.splitlines()[-1] == str(error.origin)
