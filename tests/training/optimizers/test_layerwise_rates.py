"""Each depth moves at its own rate, weight decay included."""

import keras
import numpy as np
import pytest

from keras_transformer import models, training


def weights():
    return [keras.Variable(np.full((2,), 3.0, "float32"), name=name) for name in ("low", "high", "held")]


def stepped(optimizer, steps=3):
    variables = weights()
    for _ in range(steps):
        optimizer.apply([keras.ops.convert_to_tensor([0.5, -2.0], "float32")] * 3, variables)
    return [variable.numpy() for variable in variables]


def test_a_multiplied_rate_is_adamw_at_that_rate():
    options = {"weight_decay": 0.1}
    found = stepped(training.LayerwiseAdamW(0.02, multipliers={"low": 0.25, "held": 0.0}, **options))
    np.testing.assert_allclose(found[0], stepped(keras.optimizers.AdamW(0.005, **options))[0], rtol=1e-6)
    np.testing.assert_allclose(found[1], stepped(keras.optimizers.AdamW(0.02, **options))[1], rtol=1e-6)
    np.testing.assert_array_equal(found[2], [3.0, 3.0])


def test_the_first_pattern_counts_and_the_config_brings_it_back():
    optimizer = training.LayerwiseAdamW(0.02, multipliers={"lo": 0.5, "low": 0.0})
    again = training.LayerwiseAdamW.from_config(optimizer.get_config())
    assert again.multipliers == {"lo": 0.5, "low": 0.0}
    np.testing.assert_array_equal(
        stepped(again)[0], stepped(training.LayerwiseAdamW(0.02, multipliers={"low": 0.5}))[0]
    )


@pytest.mark.exhaustive
def test_a_model_is_fitted_with_a_schedule_and_compiled():
    model = models.Encoder(models.Size(2, 8, 2, 16), vocabulary_size=10)
    before = {weight.path: weight.numpy() for weight in model.weights}
    rates = {**training.layerwise_decay(model, 0.5), "embedding": 0.0}
    schedule = training.WarmupCosine(0.01, warmup_steps=1, total_steps=10)
    model.compile(training.LayerwiseAdamW(schedule, multipliers=rates), "mse")
    tokens = np.array([[1, 2, 3]], "int32")
    model.fit({"token_ids": tokens, "padding_mask": tokens > 0}, np.ones((1, 3, 8)), epochs=3, verbose=0)
    for weight in model.trainable_weights:
        assert np.array_equal(weight.numpy(), before[weight.path]) == ("embedding" in weight.path), weight.path


def test_refusals():
    with pytest.raises(ValueError, match="at least 0"):
        training.LayerwiseAdamW(multipliers={"low": -1.0})
    with pytest.raises(ValueError, match="decay"):
        training.layerwise_decay(models.Encoder(models.Size(1, 8, 2, 16), vocabulary_size=10), 1.5)
    with pytest.raises(ValueError, match="blocks"):
        training.layerwise_decay(keras.Sequential([keras.layers.Dense(1)]))
