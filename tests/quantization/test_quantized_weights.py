"""Files of quantized weights: with them, the float model becomes the model that was quantized."""

import keras
import numpy as np
import pytest

from keras_transformer import models, tasks
from keras_transformer.quantization import (
    QuantizedWeights,
    WeightQuantizationError,
    WeightScheme,
    quantize_weights,
    rotate,
)
from keras_transformer.training import learned_weights, quantization_aware

TOKENS = np.random.default_rng(2).integers(0, 50, (3, 9))
BATCH = {"token_ids": TOKENS, "padding_mask": np.ones(TOKENS.shape, bool)}


def float_model():
    """A language model with a head of its own, and norms away from their initial values."""
    keras.utils.set_random_seed(3)
    model = tasks.LanguageModel(models.Llama(models.Size(2, 64, 2, 128), 50), tie_embeddings=False)
    for index, weight in enumerate(model.weights):
        if weight.path.endswith("scale"):
            weight.assign(np.random.default_rng(index).uniform(0.5, 2.0, weight.shape))
    return model


def rotated(model):
    rotate(model, BATCH)
    return quantize_weights(model, WeightScheme(4))


def by_awq(model):
    return quantize_weights(model, WeightScheme(4), "awq", BATCH)


@pytest.mark.parametrize("method", [rotated, by_awq])
def test_a_file_makes_the_quantized_model_out_of_the_float_model(method, tmp_path):
    quantized, other = float_model(), float_model()
    method(quantized).save(tmp_path / "weights.safetensors")

    before = other.predict_on_batch(BATCH)
    QuantizedWeights.load(tmp_path / "weights.safetensors").apply(other)

    expected = quantized.predict_on_batch(BATCH)
    np.testing.assert_array_equal(other.predict_on_batch(BATCH), expected)
    assert np.abs(expected - before).max() > 1e-3


def test_weights_that_training_changed_are_in_the_file(tmp_path):
    inputs = keras.Input((64,), name="x")
    normed = keras.layers.LayerNormalization(name="norm")(inputs)
    model = keras.Model(inputs, keras.layers.Dense(64, name="wide")(normed), name="model")
    aware = quantization_aware(model, WeightScheme(3))
    aware.compile(keras.optimizers.Adam(0.05), "mse")
    x, y = np.random.default_rng(0).normal(size=(2, 32, 64))
    aware.fit(x, y, epochs=2, verbose=0)
    learned_weights(aware).save(tmp_path / "weights.safetensors")

    other = keras.models.clone_model(model)
    QuantizedWeights.load(tmp_path / "weights.safetensors").apply(other)

    assert np.abs(other.get_layer("norm").gamma - 1).max() > 0.01
    np.testing.assert_allclose(other.predict_on_batch(x), aware.predict_on_batch(x), rtol=0, atol=1e-5)


def test_a_weight_that_the_model_has_not_is_named_before_anything_changes():
    model = float_model()
    weights = quantize_weights(float_model(), WeightScheme(4))
    weights.unquantized["elsewhere/bias"] = np.zeros(3, "float32")
    before = model.predict_on_batch(BATCH)

    with pytest.raises(WeightQuantizationError, match=r"'elsewhere/bias' of \(3,\)"):
        weights.apply(model)
    np.testing.assert_array_equal(model.predict_on_batch(BATCH), before)


def test_two_weights_of_one_path_are_refused():
    parts = [keras.Sequential([keras.Input((64,)), keras.layers.Dense(64, name="same")], name=name) for name in "ab"]
    for part in parts:
        part.layers[0]._path = part.layers[0].kernel._path = "same/kernel"
    inputs = keras.Input((64,))
    model = keras.Model(inputs, parts[1](parts[0](inputs)))

    with pytest.raises(WeightQuantizationError, match="2 weights have the path 'same/kernel'"):
        quantize_weights(model, WeightScheme(4))
