from types import SimpleNamespace

import keras
import numpy as np
import pytest

from keras_transformer import training
from keras_transformer.training.monitoring.observed_steps import observe_steps

X = np.arange(8.0).reshape(8, 1)


class Seen(keras.callbacks.Callback):
    """Records the first input of each batch, and the kernel before the step."""

    def __init__(self):
        super().__init__()
        self.batches, self.kernels = [], []

    def on_train_begin(self, logs=None):
        self.kernel = self.model.layers[0].kernel
        observe_steps(self.model, self.observe)

    def observe(self, batches, value):
        inputs = [np.array(keras.ops.convert_to_numpy(batch[0]))[0, 0] for batch in batches]
        self.batches.append(inputs)
        self.kernels.append(float(keras.ops.convert_to_numpy(value(self.kernel))[0, 0]))


class Interrupt(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        raise KeyboardInterrupt


def model(**options):
    made = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")])
    made.compile(keras.optimizers.SGD(0.0), "mse", **options)
    return made


def fit(made, *callbacks):
    made.fit(X, X, batch_size=2, shuffle=False, verbose=0, callbacks=list(callbacks))


def test_batches_and_values_come_before_the_step():
    seen, made = Seen(), model()
    made.set_weights([np.array([[3.0]])])
    fit(made, seen)
    assert seen.batches == [[0.0], [2.0], [4.0], [6.0]]
    assert seen.kernels == [3.0] * 4


def test_several_steps_in_one_call():
    seen = Seen()
    fit(model(steps_per_execution=3), seen)
    assert seen.batches == [[0.0, 2.0, 4.0], [6.0]]


def test_two_observers_see_the_same():
    one, other = Seen(), Seen()
    fit(model(), one, other)
    assert one.batches == other.batches == [[0.0], [2.0], [4.0], [6.0]]


def test_an_interrupted_fit_leaves_no_observer():
    seen, made = Seen(), model()
    with pytest.raises(KeyboardInterrupt):
        fit(made, seen, Interrupt())
    fit(made, Seen())
    assert seen.batches == [[0.0]]


def test_refuses_several_replicas():
    distributed = SimpleNamespace(distribute_strategy=SimpleNamespace(num_replicas_in_sync=2))
    with pytest.raises(training.DistributionError, match="Seen reads the batches of a single device; .* trains on 2"):
        observe_steps(distributed, Seen().observe)
