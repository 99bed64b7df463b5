import keras
import numpy as np
import pytest

from keras_transformer import training


def model():
    made = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, kernel_initializer="zeros")])
    made.compile(keras.optimizers.SGD(0.0), "mse")
    return made


def data(steps, batch=2, spikes=()):
    """Labels whose squares, the losses of a model that returns 0, are about 1; at a spike 100."""
    y = 1 + np.random.default_rng(0).uniform(-0.1, 0.1, (steps, batch, 1))
    y[list(spikes)] = 10
    return np.ones((steps * batch, 1)), y.reshape(-1, 1).astype("float32")


def fit(spikes, steps=60, at=(), epochs=1, **options):
    x, y = data(steps, spikes=at)
    options = {"batch_size": 2, "shuffle": False, "verbose": 0} | options
    model().fit(x, y, epochs=epochs, callbacks=[spikes], **options)
    return spikes.spikes


def test_a_spike_is_reported_with_its_batch(tmp_path):
    spikes = training.LossSpikes(tmp_path, every=7)
    with pytest.warns(
        UserWarning, match=r"^Step 45 \(epoch 0, batch 45\) has a loss of 100; the median of the 45 steps"
    ):
        (spike,) = fit(spikes, at=[45])
    assert (spike.step, spike.epoch, spike.batch) == (45, 0, 45)
    np.testing.assert_allclose(spike.loss, 100, rtol=1e-4)
    np.testing.assert_allclose(spike.median, 1, atol=0.1)
    assert spike.path == tmp_path / "spike_step_45.npz"
    x, y, sample_weight = training.read_batch(spike.path)
    np.testing.assert_array_equal(y, [[10.0], [10.0]])
    assert x.shape == (2, 1)
    assert sample_weight is None


def test_spikes_of_a_later_epoch_are_counted_from_the_start():
    spikes = training.LossSpikes()
    with pytest.warns(UserWarning, match="robust z-score"):
        found = fit(spikes, steps=25, at=[10], epochs=3)
    # In the first epoch there are too few losses before it; it is then one of many.
    assert [(spike.step, spike.epoch, spike.batch) for spike in found] == [(35, 1, 10), (60, 2, 10)]


def test_even_losses_have_no_spikes(recwarn):
    assert fit(training.LossSpikes(every=1)) == []
    assert [each for each in recwarn if "spike" in str(each.message)] == []


def test_the_last_batch_is_smaller():
    x, y = data(41)
    y[60:62] = 10
    spikes = training.LossSpikes()
    with pytest.warns(UserWarning, match="Step 30"):
        model().fit(x[:-1], y[:-1], batch_size=2, shuffle=False, verbose=0, callbacks=[spikes])
    assert [spike.step for spike in spikes.spikes] == [30]


def test_refusals():
    for options, name in (({"threshold": 0}, "threshold"), ({"window": 5}, "window"), ({"every": 0}, "every")):
        with pytest.raises(ValueError, match=name):
            training.LossSpikes(**options)
