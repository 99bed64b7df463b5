"""The Multi30k example, on a toy language that this file makes up."""

import argparse
import gzip
import hashlib
import json
import re

import numpy as np
import pytest

from keras_transformer import load_model
from keras_transformer.export import load

pytestmark = pytest.mark.exhaustive

WORDS = {"a dog": "ein Hund", "a cat": "eine Katze", "two men": "zwei Männer", "the child": "das Kind"}
VERBS = {"sees": "sieht", "likes": "mag", "draws": "malt"}


def write_pairs(folder, split, count):
    """Sentences of subject, verb and object, drawn at random."""
    generator = np.random.default_rng(count)
    lines = []
    for _ in range(count):
        first, last = (list(WORDS)[index] for index in generator.integers(0, len(WORDS), 2))
        verb = list(VERBS)[generator.integers(0, len(VERBS))]
        lines.append((f"{first} {verb} {last}.".capitalize(), f"{WORDS[first]} {VERBS[verb]} {WORDS[last]}."))
    for language, texts in zip(("en", "de"), zip(*lines, strict=True), strict=True):
        with gzip.open(folder / f"{split}.{language}.gz", "wt", encoding="utf-8") as file:
            file.write("\n".join(texts) + "\n")


@pytest.fixture(scope="module")
def example(example_module):
    return example_module("translation")


@pytest.fixture(scope="module")
def finished(tmp_path_factory, run_example):
    root = tmp_path_factory.mktemp("example")
    for split, count in (("train", 200), ("val", 10), ("test_2016_flickr", 12)):
        write_pairs(root, split, count)
    words = ("--data-dir", root, "--out", root / "out", "--checkpoint", root / "state", "--quick", "--seed", "1")
    return root, run_example("translation", *words)


def test_prints_curve_cost_and_the_same_scores_in_every_runtime(finished):
    root, printed = finished
    assert printed.count("val_loss") == 2
    assert re.search(r"trained for \d\.\d\d hours, \d\.\d\d hours of CPU time, with tensorflow \d", printed)
    scores = json.loads((root / "out" / "history.json").read_text())["scores"]
    assert list(scores) == ["keras, greedy", "keras, beam", "saved_model, beam", "tflite, beam", "onnx, beam"]
    for runtime in ("saved_model", "tflite", "onnx"):
        assert scores[f"{runtime}, beam"] == {**scores["keras, beam"], "same as keras": 12}


def test_leaves_a_model_and_a_bundle_that_translate_text(finished):
    root, _ = finished
    out = root / "out"
    history = json.loads((out / "history.json").read_text())
    assert len(history["loss"]) == len(history["val_loss"]) == len(history["cpu_seconds"]) == 2
    assert (out / "curve.png").stat().st_size > 1000
    sources = ["A dog sees two men.", "The child draws a cat."]
    expected = load_model(out / "model.keras").generate(sources, max_new_tokens=8)
    assert load(out / "bundle", "onnx").generate(sources, max_new_tokens=8) == expected
    assert all(isinstance(text, str) for text in expected)
    assert any(expected)


def test_a_finished_training_is_taken_up_with_its_averaged_weights(finished, example):
    root, _ = finished
    data = example.load_data(root, quick=True)
    trained = load_model(root / "out" / "model.keras")
    model = example.build_model(trained.tokenizer, example.QUICK_SIZE)
    arguments = argparse.Namespace(checkpoint=root / "state", seed=1, epochs=2)
    history = example.train(model, data, trained.tokenizer, arguments)
    saved = json.loads((root / "out" / "history.json").read_text())
    assert history == {name: values for name, values in saved.items() if name != "scores"}
    for ours, theirs in zip(model.get_weights(), trained.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_scores(example):
    found = example.score(["ein Hund läuft über das Gras ."], ["Ein Hund läuft über das Gras ."])
    assert found["BLEU (tokenized, lower-cased)"] == pytest.approx(100)
    # Case counts: 6 of 7 words, 5 of 6 pairs, 4 of 5 and 3 of 4 are right.
    assert found["sacreBLEU"] == pytest.approx(100 * (6 / 7 * 5 / 6 * 4 / 5 * 3 / 4) ** 0.25)


def test_tokens_are_those_of_the_data_set(example):
    # As in the data set's own tokenized files.
    assert example.moses(['Ein Kind mit der Nummer "93" fährt Ski.']) == [
        "ein kind mit der nummer &quot; 93 &quot; fährt ski ."
    ]


def test_a_download_is_checked(example, tmp_path, monkeypatch):
    (tmp_path / "remote").mkdir()
    (tmp_path / "remote" / "train.en.gz").write_bytes(b"what was meant")
    monkeypatch.setattr(example, "DATA_ADDRESS", (tmp_path / "remote").as_uri() + "/")
    monkeypatch.setattr(example, "DATA_FILES", {"train.en.gz": hashlib.sha256(b"what was meant").hexdigest()})
    assert (example.download(tmp_path / "good") / "train.en.gz").read_bytes() == b"what was meant"
    monkeypatch.setattr(example, "DATA_FILES", {"train.en.gz": hashlib.sha256(b"something else").hexdigest()})
    with pytest.raises(ValueError, match="corrupted"):
        example.download(tmp_path / "bad")
