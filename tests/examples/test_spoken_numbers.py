"""The example of spoken strings of digits, on tones that this file makes up."""

import math
import sys
import zipfile

import numpy as np
import pytest

pytestmark = pytest.mark.exhaustive

soundfile = pytest.importorskip("soundfile")


@pytest.fixture(scope="module")
def example(example_module):
    """The module, which imports the example of single digits."""
    sys.modules["spoken_digits"] = example_module("spoken_digits")
    yield example_module("spoken_numbers")
    del sys.modules["spoken_digits"]


@pytest.fixture(scope="module")
def recordings(tmp_path_factory):
    """A folder with a zip of six recordings of each digit by each of two speakers: a tone as high as the digit."""
    folder = tmp_path_factory.mktemp("digits")
    random = np.random.default_rng(0)
    with zipfile.ZipFile(folder / "recordings.zip", "w") as archive:
        for speaker in ("ann", "bo"):
            for digit in range(10):
                for index in range(6):
                    times = np.arange(random.integers(2000, 4000)) / 8000
                    soundfile.write(folder / "one.wav", 0.5 * np.sin(2 * np.pi * (300 + 200 * digit) * times), 8000)
                    archive.write(folder / "one.wav", f"recordings/{digit}_{speaker}_{index}.wav")
    return folder


def test_trains_exports_and_all_runtimes_agree(example, recordings, tmp_path, run_example):
    printed = run_example("spoken_numbers", "--data-dir", recordings, "--out", tmp_path, "--smoke", "--held-out", "bo")
    figures = next(line for line in printed.splitlines() if line.startswith("test: "))
    assert figures.endswith("strings of 60 digits")
    for backend in ("saved_model", "tflite", "onnx"):
        assert f"{backend}: 20 of 20 texts equal to those of Keras" in printed


def test_every_recording_is_in_one_string(example, recordings):
    digits = sys.modules["spoken_digits"].read(recordings)
    inputs, texts = example.strings(digits, np.random.default_rng(0))
    words = " ".join(texts).split()
    assert sorted(words) == sorted(12 * list(example.WORDS))
    assert {len(text.split()) for text in texts} == {1, 2, 3, 4}
    lengths = inputs["padding_mask"].sum(axis=1)
    assert (np.abs(inputs["samples"][~inputs["padding_mask"]]) == 0).all()
    assert len(set(lengths.tolist())) > 10


def test_known_words_are_read_from_unclear_letters(example):
    ids = example.IDS
    text = "onr two"
    logits = np.full((1, len(text), len(ids) + 1), -5.0)
    for frame, letter in enumerate(text):
        logits[0, frame, ids[letter]] = 0.0
    logits[0, 2, ids["e"]] = -1.0
    assert example.read(logits) == ["onr two"]
    assert example.read(logits, spelled=True) == ["one two"]
    assert example.spelling((ids["t"],), ids["h"]) == 0.0
    assert example.spelling((ids["t"],), None) == -math.inf
