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


@pytest.mark.slow
@pytest.mark.parametrize("name", ["clipped", "accumulated", "resumed"])
def test_two_devices_update_as_one_with_the_whole_batch(weights, name):
    np.testing.assert_allclose(weights[name], weights["whole"], atol=1e-5)


def distribute(optimizer, **options):
    def build():
        return keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])

    return training.distributed(build, lambda model: model.compile(optimizer, "mse", **options))


def test_averages_and_several_steps_are_refused_with_accumulation():
    with pytest.raises(training.DistributionError, match="use_ema"):
        distribute(keras.optimizers.SGD(gradient_accumulation_steps=2, use_ema=True))
    with pytest.raises(training.DistributionError, match="steps_per_execution"):
        distribute(keras.optimizers.SGD(gradient_accumulation_steps=2), steps_per_execution=2)


def test_accumulation_inside_of_another_optimizer_is_refused():
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(gradient_accumulation_steps=2))
    with pytest.raises(training.DistributionError, match="LossScaleOptimizer"):
        distribute(optimizer)
