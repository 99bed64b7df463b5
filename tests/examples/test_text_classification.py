"""The example of text classification on sentences that this file makes up."""

import json
import random

import numpy as np
import pytest

from keras_transformer import load_model
from keras_transformer.export import load
from keras_transformer.text import WordPiece

pytestmark = pytest.mark.exhaustive

QUESTIONS = (
    "why {} moves",
    "which {} is that",
    "what does {} stand for",
    "who is {}",
    "where is {}",
    "how many {} are there",
)
THINGS = ("the moon", "a river", "this city", "our team", "a metal", "one word")


def sentences(templates, count, seed):
    source = random.Random(seed)
    labels = [index % len(templates) for index in range(count)]
    return [f"{label} {templates[label].format(source.choice(THINGS))} ?" for label in labels]


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sentences")
    reviews = ("{} was dull", "{} was fun")
    for name in ("binary.train", "binary.dev", "binary.test", "fine.train", "fine.dev", "fine.test"):
        (folder / f"stsa.{name}").write_text("\n".join(sentences(reviews, 30, name)) + "\n")
    (folder / "TREC.train.all").write_text("\n".join(sentences(QUESTIONS, 200, 1)) + "\n")
    tested = [*sentences(QUESTIONS, 39, 2), "0 what makes the sea so blue at night ?"]
    (folder / "TREC.test.all").write_text("\n".join(tested) + "\n")
    (folder / "rt-polarity.all").write_bytes(
        b"1 a caf\xe9 in the old town by the quiet sea\n1 tell me what makes the sea so blue at night\n"
    )
    (folder / "subj.all").write_text("0 nobody knows where the river goes in winter\n")
    return folder


@pytest.fixture(scope="module")
def finished(data_dir, tmp_path_factory, run_example):
    out = tmp_path_factory.mktemp("out")
    return out, run_example("text_classification", "--dataset", "trec", "--data-dir", data_dir, "--out", out, "--quick")


def test_all_runtimes_have_the_accuracy_of_keras(finished):
    _, printed = finished
    accuracy = next(line.split()[2] for line in printed.splitlines() if line.startswith("test accuracy"))
    for backend in ("saved_model", "tflite", "onnx"):
        assert f"{backend}: {accuracy}" in printed
    assert "of 40 sentences" in printed


def test_bundle_takes_sentences_and_names_the_classes(finished):
    out, _ = finished
    model, runtime = load_model(out / "model.keras"), load(out / "bundle")
    asked = ["who is the moon ?", "how many rivers are there in this old and quiet city ?"]
    inputs = runtime.tokenizer(asked, start=True, end=True)
    np.testing.assert_allclose(runtime(asked)["logits"], model.predict(inputs, verbose=0), atol=1e-5)
    manifest = json.loads((out / "bundle" / "manifest.json").read_text())
    assert manifest["metadata"]["class_names"][3] == "person"
    history = json.loads((out / "history.json").read_text())
    assert len(history["loss"]) == len(history["val_accuracy"]) == 2
    assert (out / "curve.png").stat().st_size > 1000


def test_nothing_held_out_is_read_without_its_label(data_dir, example_module):
    example = example_module("text_classification")
    assert example.read_unlabeled(data_dir)[-2:] == [
        "a café in the old town by the quiet sea",
        "nobody knows where the river goes in winter",
    ]


def test_runs_of_words(example_module):
    example = example_module("text_classification")
    assert example.word_runs("It 's a Dog , and it") == {"it s a dog and it"}
    assert example.word_runs("one two three four five six seven", count=6) == {
        "one two three four five six",
        "two three four five six seven",
    }
    assert example.word_runs("short one") == {"short one"}


def test_sentences_are_split_anew_between_the_same_ends(example_module):
    example = example_module("text_classification")
    example.SPLIT_RATE, example.MAX_LENGTH = 1 - 1e-12, 5
    tokenizer = WordPiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "n", "##e", "##w", "new", "i"], lowercase=True)
    rows = example.resplit(tokenizer, ["I New", "new i"], seed=0)
    # Of the first, the last piece does not fit.
    assert rows == [[2, 8, 4, 5, 3], [2, 4, 5, 6, 3]] * example.NUM_SPLITS
