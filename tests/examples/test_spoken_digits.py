"""The example of spoken digits, on tones that this file makes up."""

import json
import zipfile

import numpy as np
import pytest

from keras_transformer import load_model
from keras_transformer.export import load

pytestmark = pytest.mark.exhaustive

soundfile = pytest.importorskip("soundfile")
SPEAKERS = ("ann", "bo")


@pytest.fixture(scope="module")
def recordings(tmp_path_factory):
    """A zip with six recordings of each digit by each of two speakers: a tone as high as the digit."""
    folder = tmp_path_factory.mktemp("digits")
    random = np.random.default_rng(0)
    with zipfile.ZipFile(folder / "recordings.zip", "w") as archive:
        for number, speaker in enumerate(SPEAKERS):
            for digit in range(10):
                for index in range(6):
                    times = np.arange(random.integers(2000, 4000)) / 8000
                    sound = 0.5 * np.sin(2 * np.pi * (300 + 200 * digit + 30 * number) * times)
                    path = folder / "one.wav"
                    soundfile.write(path, sound, 8000)
                    archive.write(path, f"recordings/{digit}_{speaker}_{index}.wav")
        archive.writestr("recordings/README.md", "no recording")
    return folder


@pytest.fixture(scope="module")
def finished(recordings, tmp_path_factory, run_example):
    out = tmp_path_factory.mktemp("out")
    return out, run_example("spoken_digits", "--data-dir", recordings, "--out", out, "--smoke")


def test_tests_on_the_first_five_of_each_and_all_runtimes_agree(finished):
    _, printed = finished
    figure = next(line for line in printed.splitlines() if line.startswith("official split: "))
    figure = figure.removeprefix("official split: ")
    assert figure.endswith("of 100 recordings")
    for backend in ("saved_model", "tflite", "onnx"):
        assert f"{backend}: {figure}; 100 labels equal to those of Keras" in printed


def test_leaves_a_model_of_samples(finished):
    out, _ = finished
    sound = np.random.default_rng(1).normal(0, 0.1, (2, 8000)).astype("float32")
    expected = load_model(out / "model.keras").predict(sound, verbose=0)
    found = load(out / "bundle", "onnx")(sound)["probabilities"]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert len(json.loads((out / "history.json").read_text())["loss"]) == 1


def test_a_speaker_can_be_left_out(recordings, tmp_path, run_example):
    arguments = ("--data-dir", recordings, "--out", tmp_path, "--smoke", "--held-out")
    assert "of 60 recordings of bo" in run_example("spoken_digits", *arguments, "bo")
    with pytest.raises(SystemExit, match="none of the speakers: ann, bo"):
        run_example("spoken_digits", *arguments, "cy")


def test_recordings_are_told_by_their_names(recordings, example_module):
    found = example_module("spoken_digits").read(recordings)
    assert found.samples.shape == (120, 8000)
    assert found.samples.dtype == "float32"
    assert sorted(set(found.speakers)) == list(SPEAKERS)
    np.testing.assert_array_equal(np.bincount(found.digits), [12] * 10)
    spectrum = np.abs(np.fft.rfft(found.samples, axis=1)).argmax(axis=1)
    expected = 300 + 200 * found.digits + 30 * (found.speakers == "bo")
    np.testing.assert_allclose(spectrum, expected, atol=3)
    np.testing.assert_array_equal(found.where(found.indices == 5).indices, [5] * 20)
