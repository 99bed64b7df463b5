"""Clipped and accumulated gradients of two devices of `tf.distribute` update weights as on one device."""

from pathlib import Path

import keras
import numpy as np
import pytest

from keras_transformer import training

pytestmark = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="of tf.distribute")

WORKER = Path(__file__).with_name("accumulation_worker.py")


@pytest.fixture(scope="module")
def weights(tmp_path_factory, results_of_worker):
    found = results_of_worker(WORKER, str(tmp_path_factory.mktemp("resumed")))
    return {name: np.array(each["weights"]) for name, each in found.items()}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["clipped", "accumulated", "resumed", "clipped, scaled", "accumulated, scaled"])
def test_two_devices_update_as_one_with_the_whole_batch(weights, name):
    np.testing.assert_allclose(weights[name], weights["whole"], atol=1e-5)


@pytest.mark.exhaustive
def test_averages_of_two_devices_are_those_of_one(weights):
    np.testing.assert_allclose(weights["averages"], weights["averages of one device"], atol=1e-5)
    assert np.abs(weights["averages"] - weights["whole"]).max() > 1e-3


def distribute(optimizer, **options):
    def build():
        return keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])

    return training.distributed(build, lambda model: model.compile(optimizer, "mse", **options))


def test_several_steps_are_refused_with_accumulation():
    with pytest.raises(training.DistributionError, match="steps_per_execution"):
        distribute(keras.optimizers.SGD(gradient_accumulation_steps=2), steps_per_execution=2)


@pytest.mark.parametrize("wrap", [lambda optimizer: optimizer, keras.optimizers.LossScaleOptimizer])
def test_weights_are_not_replaced_by_averages_during_training(wrap):
    with pytest.raises(training.DistributionError, match="ema_overwrite_frequency"):
        distribute(wrap(keras.optimizers.SGD(use_ema=True, ema_overwrite_frequency=2)))
