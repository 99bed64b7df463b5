"""Parakeet from recordings to the texts that transformers reads: features, frames of a padded batch, and refusals."""

import json
import pathlib
import shutil

import numpy as np
import pytest

from checkpoint_cases import Expected, difference, predicted
from keras_transformer import audio, checkpoints, tasks

FOLDER = pathlib.Path(__file__).parents[1] / "data" / "checkpoints" / "parakeet_ctc-CTC"


@pytest.fixture(scope="module")
def model():
    return checkpoints.from_huggingface(FOLDER, verbose=0)


def recordings():
    generator = np.random.default_rng(1)
    return [generator.normal(0.05, 0.2, length).astype("float32") for length in (2410, 1333, 620)]


@pytest.mark.slow
def test_features_and_texts_are_those_of_transformers(model):
    samples, lengths = audio.stack_recordings(recordings())
    mask = np.arange(samples.shape[1]) < lengths[:, None]
    with np.load(FOLDER / "features.npz") as expected:
        features, frames = model.processor(samples, padding_mask=mask)
        np.testing.assert_allclose(features, expected["input_features"], atol=2e-5)
        np.testing.assert_array_equal(frames, expected["attention_mask"])
    texts = json.loads((FOLDER / "texts.json").read_text())["greedy"]
    assert tasks.transcribe(model, recordings()) == texts
    # Padding is no part of a recording, which gives its text alone.
    assert tasks.transcribe(model, recordings()[1:2]) == texts[1:2]


def test_padding_has_no_influence(model):
    inputs = Expected(FOLDER).inputs
    noise = np.where(inputs["padding_mask"][..., None], inputs["features"], 7.0).astype("float32")
    noisy = predicted(model, {**inputs, "features": noise})["output"]
    np.testing.assert_array_equal(noisy, predicted(model, inputs)["output"])
    assert (noisy[:, :, 0] == -1e9).sum(axis=1).tolist() == [0, 2, 6]


def test_positions_are_read_in_their_order(model):
    """Sines and cosines alternate in the file: in another order, outputs are others."""
    kernel = next(each for each in model.weights if each.path.endswith("position/kernel"))
    kept, expected = kernel.numpy(), Expected(FOLDER)
    kernel.assign(np.concatenate([kept[::2], kept[1::2]]))
    try:
        assert difference(predicted(model, expected.inputs), expected.outputs, expected.inputs)[0] > 1e-3
    finally:
        kernel.assign(kept)


@pytest.mark.parametrize(
    "file, setting",
    [
        ("config.json", {"pad_token_id": 13}),
        ("config.json", {"encoder_config/dropout_positions": 0.1}),
        ("config.json", {"encoder_config/conv_kernel_size": 4}),
        ("config.json", {"encoder_config/subsampling_conv_kernel_size": 4}),
        ("config.json", {"encoder_config/model_type": "other"}),
        ("preprocessor_config.json", {"feature_extractor_type": "WhisperFeatureExtractor"}),
        ("preprocessor_config.json", {"n_fft": 131}),
        ("preprocessor_config.json", {"win_length": 140}),
        ("preprocessor_config.json", {"preemphasis": "strong"}),
        ("preprocessor_config.json", {"padding_side": "left"}),
        ("preprocessor_config.json", {"hop_length": 0}),
    ],
    ids=str,
)
def test_settings_that_are_refused(file, setting, tmp_path):
    folder = shutil.copytree(FOLDER, tmp_path / "changed")
    config = json.loads((folder / file).read_text())
    ((name, value),) = setting.items()
    *sections, last = name.split("/")
    (config[sections[0]] if sections else config)[last] = value
    (folder / file).write_text(json.dumps(config))
    with pytest.raises((checkpoints.CheckpointError, audio.FeatureExtractorError), match=r"must|[Ss]upport|Expected"):
        checkpoints.from_huggingface(folder, verbose=0)
