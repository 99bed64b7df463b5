"""The example of question answering, on a file in SQuAD's format that this file makes up."""

import json

import numpy as np
import pytest

from keras_transformer.text import WordPiece

pytestmark = pytest.mark.exhaustive

PLACES = ("paris", "rome", "the old town")


def paragraph(name, place):
    context = f"{name} was born in {place}. later {name} lived in a village."
    answer = {"answer_start": context.index(place), "text": place}
    return {"context": context, "qas": [{"id": name, "question": f"where was {name} born?", "answers": [answer]}]}


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("xquad") / "xquad.en.json"
    names = ("ann", "bob", "carl", "dora", "eve", "finn", "gil", "hans")
    articles = [{"paragraphs": [paragraph(name, place) for place in PLACES]} for name in names]
    path.write_text(json.dumps({"version": "1.1", "data": articles}))
    return path


@pytest.fixture(scope="module")
def finished(file, tmp_path_factory, run_example):
    out = tmp_path_factory.mktemp("out")
    return out, run_example("question_answering", "--data-dir", file.parent, "--out", out, "--quick")


def test_all_runtimes_have_the_figures_of_keras(finished):
    _, printed = finished
    assert "18 questions to train on, 6 to test on" in printed
    figure = next(line for line in printed.splitlines() if line.startswith("test: ")).removeprefix("test: ")
    for backend in ("saved_model", "tflite", "onnx"):
        assert f"{backend}: {figure}" in printed


def test_leaves_model_tokenizer_and_curve(finished):
    out, _ = finished
    assert {"model.keras", "tokenizer", "history.json", "curve.png", "bundle"} <= {path.name for path in out.iterdir()}


def test_train_and_test_go_together(run_example, file, capsys):
    with pytest.raises(SystemExit):
        run_example("question_answering", "--train", file)
    assert "both --train and --test" in capsys.readouterr().err


def test_the_best_span_of_all_windows_is_the_answer(example_module, monkeypatch):
    example = example_module("question_answering")
    tokenizer = WordPiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"abcdefgh", "?"])
    monkeypatch.setattr(example, "WINDOW", {"max_length": 7, "stride": 2})
    question = example.Question("?", "A b C d e F g", [(4, "C")])

    def logits(inputs):
        # Loud for [CLS] and [SEP], which are no context; then for F, then for b.
        ids = inputs["token_ids"]
        said = np.where(ids == tokenizer.token_to_id("f"), 5.0, np.where(ids == tokenizer.token_to_id("b"), 3.0, 0.0))
        said = np.where(ids < 4, 9.0, said)
        assert inputs["segment_ids"].shape == ids.shape == inputs["padding_mask"].shape
        return {"start_logits": said, "end_logits": said}

    assert example.answer(logits, tokenizer, question) == "F"
    exact, f1 = example.score(logits, tokenizer, [question, question._replace(answers=[(0, "b"), (10, "F")])]).split(
        ", "
    )
    assert (exact, f1) == ("exact match 50.00%", "F1 50.00% of 2 questions")
