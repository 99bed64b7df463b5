"""From sound to what Whisper makes of it, with the spectrogram of the checkpoint."""

import pathlib

import numpy as np
import pytest

from keras_transformer import checkpoints, models

FOLDER = pathlib.Path(__file__).parents[1] / "data" / "checkpoints" / "whisper-AudioClassification"


@pytest.fixture(scope="module")
def expected():
    with np.load(FOLDER / "expected.npz") as arrays:
        return {name: arrays[name] for name in arrays}


@pytest.fixture
def model():
    return checkpoints.from_huggingface(FOLDER, verbose=0)


def test_the_processor_makes_the_features_of_transformers(model, expected):
    features = np.array(model.processor(expected["samples"]))
    np.testing.assert_allclose(features, expected["input/features"], atol=1e-4)
    np.testing.assert_allclose(model.predict(features, verbose=0), expected["output/logits"], atol=1e-4)


def test_the_processor_may_be_a_part_of_the_model(model, expected):
    whole = models.with_front_end(model, model.processor)
    found = whole.predict(expected["samples"], verbose=0)
    np.testing.assert_allclose(found, expected["output/logits"], atol=1e-4)


def test_the_settings_of_the_processor_are_written_back(model, tmp_path):
    checkpoints.to_huggingface(model, tmp_path / "again", verbose=0)
    name = "preprocessor_config.json"
    assert (tmp_path / "again" / name).read_bytes() == (FOLDER / name).read_bytes()


def test_a_backbone_of_whisper_brings_no_decoder_where_none_is_read(model):
    backbone = checkpoints.from_huggingface(FOLDER, task="backbone", verbose=0)
    assert backbone.output_shape == (None, 5, 16)
    assert not any("decoder" in weight.path for weight in model.weights)
