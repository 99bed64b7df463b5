"""The measures of CRATE's blocks."""

import keras
import numpy as np
import pytest

from keras_transformer import models, tasks
from keras_transformer.training import CodingRate, coding_rates
from keras_transformer.training.monitoring.coding_rate import _coding_rate

SIZE = models.Size(num_layers=2, hidden_dim=8, num_heads=2, intermediate_dim=8)


def test_formula_of_the_paper():
    """`½ Σ_k log det(I + p / (N ε²) (U_k* Z)* (U_k* Z))`, over tokens."""
    tokens = np.random.default_rng(0).normal(size=(2, 7, 3, 4))
    expected = np.zeros(2)
    for example in range(2):
        for head in range(3):
            z = tokens[example, :, head].T
            z = z / np.linalg.norm(z, axis=0)
            expected[example] += np.log(np.linalg.det(np.eye(7) + 4 / (7 * 0.01) * z.T @ z)) / 2
    np.testing.assert_allclose(_coding_rate(tokens, 0.01), expected, rtol=1e-10)


def test_tokens_in_one_direction_cost_less_than_tokens_in_all():
    one = np.tile(np.array([1.0, 0, 0]), (1, 6, 1, 1))
    every = np.tile(np.eye(3), (2, 1)).reshape(1, 6, 1, 3)
    np.testing.assert_allclose(_coding_rate(one, 0.01), np.log(1 + 3 / 0.01) / 2)
    np.testing.assert_allclose(_coding_rate(every, 0.01), 3 * np.log(1 + 1 / 0.01) / 2)


def test_each_block_is_measured_where_it_stands():
    backbone = models.CRATE(SIZE, patch_size=4, image_size=8)
    model = tasks.ImageClassifier(backbone, 3)
    images = np.random.default_rng(0).normal(size=(4, 8, 8, 3)).astype("float32")
    rates = coding_rates(model, images)
    for index in range(2):
        block = backbone.get_layer(f"encoder_block_{index}")
        before = type(backbone)(backbone.input, block.input)(images)
        code = np.asarray(block(before))
        projected = block.mixer.query_dense(block.mixer_residual.pre(before))
        assert rates[f"sparsity_{index}"] == pytest.approx(np.mean(code != 0))
        assert rates[f"coding_rate_{index}"] == pytest.approx(
            _coding_rate(np.asarray(projected), 0.01).mean(), rel=1e-5
        )
    assert coding_rates(model, images, precision=1.0)["coding_rate_0"] < rates["coding_rate_0"]
    nested = keras.Model(model.inputs, model(model.inputs))
    assert coding_rates(nested, images) == pytest.approx(rates)


def test_callback_logs_the_model_as_each_epoch_leaves_it():
    model = tasks.ImageClassifier(models.CRATE(models.Size(1, 8, 2, 8), patch_size=4, image_size=8), 3)
    model.compile("adam", "sparse_categorical_crossentropy", run_eagerly=True)
    images = np.random.default_rng(0).normal(size=(4, 8, 8, 3)).astype("float32")
    history = model.fit(images, np.array([0, 1, 2, 0]), epochs=2, callbacks=[CodingRate(images)], verbose=0).history
    for name, value in coding_rates(model, images).items():
        assert history[name][1] == pytest.approx(value)
    assert history["coding_rate_0"][0] != history["coding_rate_0"][1]


def test_a_model_without_its_parts_is_refused():
    model = models.ViT(models.Size(1, 8, 2, 16), patch_size=4, image_size=8)
    with pytest.raises(ValueError, match="has 0 and 0"):
        coding_rates(model, np.zeros((1, 8, 8, 3)))
    with pytest.raises(ValueError, match="precision must be above 0"):
        CodingRate(None, precision=0)
