"""From recordings to the texts that transformers reads, and what a checkpoint of speech keeps."""

import json
import pathlib
import shutil

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from checkpoint_cases import Expected, difference, predicted
from keras_transformer import audio, checkpoints, generation, tasks
from keras_transformer.training import CTCLoss

DATA = pathlib.Path(__file__).parents[1] / "data" / "checkpoints"
FOLDER = DATA / "wav2vec2-CTC"
NORMS = "wav2vec2.encoder.pos_conv_embed.conv.parametrizations.weight.original"


@pytest.fixture(scope="module")
def model():
    return checkpoints.from_huggingface(FOLDER, verbose=0)


@pytest.fixture(scope="module")
def texts():
    return json.loads((FOLDER / "texts.json").read_text())


def recordings():
    with np.load(FOLDER / "expected.npz") as arrays:
        return [row[mask] for row, mask in zip(arrays["recordings"], arrays["input/padding_mask"], strict=True)]


@pytest.mark.slow
def test_transcripts_are_those_of_transformers(model, texts):
    assert tasks.transcribe(model, recordings(), batch_size=2) == texts["greedy"]
    search = tasks.transcribe(model, recordings(), decode=lambda logits, blank_id: beam(logits, blank_id))
    assert len(search) == 3


def beam(logits, blank_id):
    assert blank_id == 3
    return [results[0].token_ids for results in generation.ctc_beam_search(logits, blank_id, num_beams=4)]


def test_tokens_are_those_of_transformers(model, texts):
    for text, ids in texts["encoded"].items():
        assert model.tokenizer.encode(text) == ids
        assert model.tokenizer.decode(ids, skip_special_tokens=False) == texts["decoded"][text]
    # Silence, and spaces alone.
    assert model.tokenizer.decode([[], [4], [4, 7, 4]]) == ["", "", "A"]


def test_the_processor_normalizes_as_transformers(model):
    expected = Expected(FOLDER)
    samples, _ = audio.stack_recordings(recordings())
    found = model.processor(samples, padding_mask=expected.inputs["padding_mask"])
    np.testing.assert_allclose(found, expected.inputs["samples"], atol=2e-6)


def test_other_recordings_and_models_are_refused(model):
    with pytest.raises(audio.AudioError, match="16000 Hz"):
        tasks.transcribe(model, [audio.Recording(np.zeros(800), 8000)])
    with pytest.raises(ValueError, match="SpeechRecognizer"):
        tasks.transcribe(checkpoints.from_huggingface(DATA / "hubert-CTC", verbose=0), recordings())


@pytest.mark.slow
def test_weight_norm_of_a_trained_model(model, tmp_path):
    """After training the direction is the kernel, whose norm is the other tensor: transformers reads the same product."""
    keras.utils.set_random_seed(0)
    trained = checkpoints.from_huggingface(FOLDER, verbose=0)
    trained.compile(keras.optimizers.SGD(0.01), CTCLoss(blank_id=3), jit_compile=False)
    inputs = Expected(FOLDER).inputs
    trained.train_on_batch(inputs, np.array([[6, 0, 10], [7, 6, -100], [8, -100, -100]]))
    checkpoints.to_huggingface(trained, tmp_path / "trained", verbose=0)
    before, after = load_file(FOLDER / "model.safetensors"), load_file(tmp_path / "trained" / "model.safetensors")
    norms, directions = (after[f"{NORMS}{part}"] for part in (0, 1))
    assert (norms.shape, directions.shape) == ((1, 1, 6), (12, 4, 6))
    np.testing.assert_allclose(norms, np.linalg.norm(directions, axis=(0, 1), keepdims=True), rtol=1e-6)
    product = before[f"{NORMS}0"] * before[f"{NORMS}1"] / np.linalg.norm(before[f"{NORMS}1"], axis=(0, 1))
    assert 0 < np.abs(directions - product).max() < 0.05
    again = checkpoints.from_huggingface(tmp_path / "trained", verbose=0)
    np.testing.assert_allclose(predicted(again, inputs)["output"], predicted(trained, inputs)["output"], atol=1e-5)


def test_old_names_of_the_weight_norm(tmp_path):
    shutil.copytree(FOLDER, tmp_path / "old")
    tensors = load_file(FOLDER / "model.safetensors")
    for part, old in enumerate("gv"):
        tensors[NORMS.replace("parametrizations.weight.original", f"weight_{old}")] = tensors.pop(f"{NORMS}{part}")
    save_file(tensors, tmp_path / "old" / "model.safetensors", metadata={"format": "pt"})
    model, expected = checkpoints.from_huggingface(tmp_path / "old", verbose=0), Expected(FOLDER)
    assert difference(predicted(model, expected.inputs), expected.outputs, expected.inputs)[0] <= 1e-5
    checkpoints.to_huggingface(model, tmp_path / "again", verbose=0)
    again = load_file(tmp_path / "again" / "model.safetensors")
    assert {name: array.tobytes() for name, array in again.items()} == {
        name: array.tobytes() for name, array in tensors.items()
    }


def test_masking_is_that_of_the_config(model):
    layer = model.get_layer("span_masking")
    names = ("probability", "span_length", "min_spans", "feature_probability", "feature_span_length")
    assert [getattr(layer, name) for name in names] == [0.3, 3, 1, 0.2, 2]
    assert layer.min_feature_spans == 1


@pytest.mark.parametrize(
    "setting",
    [
        {"feat_extract_norm": "batch"},
        {"conv_dim": [5, 6]},
        {"conv_stride": [0, 3, 2]},
        {"num_conv_pos_embedding_groups": 5},
        {"mask_time_prob": 1.5},
        {"pad_token_id": 11},
    ],
    ids=str,
)
def test_invalid_settings(tmp_path, setting):
    shutil.copytree(FOLDER, tmp_path / "changed")
    values = {**json.loads((FOLDER / "config.json").read_text()), **setting}
    (tmp_path / "changed" / "config.json").write_text(json.dumps(values))
    with pytest.raises(checkpoints.CheckpointError, match=r"must|Received"):
        checkpoints.from_huggingface(tmp_path / "changed", verbose=0)


@pytest.mark.parametrize(
    "setting",
    [{"padding_value": 1.0}, {"feature_size": 80}, {"do_normalize": "yes"}, {"padding_side": "left"}],
    ids=str,
)
def test_feature_extractors_that_are_refused(tmp_path, setting):
    values = {**json.loads((FOLDER / "preprocessor_config.json").read_text()), **setting}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(values))
    with pytest.raises(audio.FeatureExtractorError, match=next(iter(setting))):
        audio.SampleNormalization.from_huggingface(tmp_path)


def test_classifier_ignores_padding():
    folder = DATA / "wav2vec2-SequenceClassification"
    model, inputs = checkpoints.from_huggingface(folder, verbose=0), Expected(folder).inputs
    noisy = {**inputs, "samples": np.where(inputs["padding_mask"], inputs["samples"], 9.0).astype("float32")}
    np.testing.assert_allclose(predicted(model, noisy)["output"], predicted(model, inputs)["output"], atol=1e-6)
