import math

import keras
import numpy as np
import pytest

from keras_transformer.training import WarmupCosine


@pytest.mark.parametrize(
    "step, rate",
    [
        (0, 0.0),
        (5, 0.1),
        (9, 0.18),
        (10, 0.2),  # the peak
        (35, 0.2 * (0.1 + 0.9 * (2 + math.sqrt(2)) / 4)),  # a quarter of the cosine
        (60, 0.11),  # half-way: the mean of peak and final rate
        (110, 0.02),
        (111, 0.02),
        (10_000, 0.02),
    ],
)
def test_values(step, rate):
    schedule = WarmupCosine(0.2, warmup_steps=10, total_steps=110, final_fraction=0.1)
    assert float(schedule(step)) == pytest.approx(rate, rel=1e-5, abs=1e-9)


def test_falls_to_zero_by_default():
    assert float(WarmupCosine(0.2, 10, 110)(110)) == pytest.approx(0.0, abs=1e-8)


def test_without_warmup_starts_at_the_peak():
    assert float(WarmupCosine(0.2, 0, 100)(0)) == pytest.approx(0.2)


def test_takes_integer_tensors():
    schedule = WarmupCosine(1.0, 4, 8)
    assert float(schedule(keras.ops.convert_to_tensor(2, "int64"))) == 0.5


def test_optimizer_follows_it_and_it_survives_saving(tmp_path):
    schedule = WarmupCosine(0.5, warmup_steps=2, total_steps=6, final_fraction=0.25)
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")])
    model.compile(keras.optimizers.SGD(schedule), "mse")
    weights = [1.0]
    for _ in range(3):
        model.train_on_batch(np.array([[1.0]]), np.array([[0.0]]))
        weights.append(float(model.get_weights()[0][0, 0]))
    # The gradient of w^2 is 2 w; the rates of the first steps are 0, 0.25 and 0.5.
    np.testing.assert_allclose(weights, [1.0, 1.0, 0.5, 0.0], atol=1e-6)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.optimizer._learning_rate.get_config() == schedule.get_config()


@pytest.mark.parametrize(
    "arguments, name",
    [((0.0, 1, 2), "peak"), ((1.0, 2, 2), "warmup"), ((1.0, -1, 2), "warmup"), ((1.0, 1, 2, 1.5), "final")],
)
def test_refuses(arguments, name):
    with pytest.raises(ValueError, match=name):
        WarmupCosine(*arguments)
