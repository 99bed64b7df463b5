"""The best bundle within a budget: what is tried, what is kept, and what is refused before any work."""

import dataclasses
import json
import math
import os
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest
from compress_worker import network

from keras_transformer.export import Compression, Evaluation, QuantizationError, compress, load
from keras_transformer.export.commands import main as cli
from keras_transformer.export.compression.budget import Budget, parse_size
from keras_transformer.export.compression.candidates import Candidate, rounded
from keras_transformer.export.compression.results import Trial
from keras_transformer.quantization import WeightScheme

BUDGET = 22_000


@pytest.fixture(scope="module")
def compressed(tmp_path_factory):
    """The folder of a compression by the command line, and its figures."""
    folder = tmp_path_factory.mktemp("compressed")
    model, random = network(), np.random.default_rng(0)
    model.save(folder / "model.keras")
    for name, count in (("train", 128), ("test", 300)):
        x = random.normal(size=(count, 64)).astype("float32")
        np.savez(folder / f"{name}.npz", x=x, labels=np.asarray(model(x)).argmax(axis=-1))
    words = ["compress", "model.keras", "--out", "small", "--data", "train.npz", "--evaluate", "test.npz"]
    words += ["--budget", f"{BUDGET / 1e3} kB", "--formats", "onnx", "--json", "found.json", "--plot", "found.png"]
    command = [sys.executable, "-m", "keras_transformer.export.commands.main", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=os.environ)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder, json.loads((folder / "found.json").read_text()), done.stdout


@pytest.mark.exhaustive
def test_the_best_of_the_files_that_fit_is_kept(compressed):
    folder, found, printed = compressed
    trials = {each["candidate"]: each for each in found["trials"]}
    assert [each["reason"] for each in trials.values()] == [""] * 8
    assert trials["float32"]["score"] == 1.0  # The labels are its own.
    fitting = {name: each for name, each in trials.items() if each["nbytes"] <= BUDGET}
    assert {"float32", "fp16", "int8"}.isdisjoint(fitting)
    assert fitting.keys() >= {"int4 by row, GPTQ", "mixed, GPTQ"}
    assert trials["int4 by row, GPTQ"]["nbytes"] < trials["mixed, GPTQ"]["nbytes"]
    assert trials[found["chosen"]]["score"] == max(each["score"] for each in fitting.values())
    assert trials["int4 by row, GPTQ"]["score"] < trials[found["chosen"]]["score"]
    assert (folder / "found.png").read_bytes().startswith(b"\x89PNG")
    assert f"small: {found['chosen']}\n" in printed


@pytest.mark.exhaustive
def test_the_bundle_computes_what_was_measured(compressed):
    folder, found, _ = compressed
    score = next(each["score"] for each in found["trials"] if each["candidate"] == found["chosen"])
    with np.load(folder / "test.npz") as file:
        outputs = next(iter(load(folder / "small", "onnx")(x=file["x"]).values()))
        assert np.mean(outputs.argmax(axis=-1) == file["labels"]) == pytest.approx(score)


def test_the_worst_format_counts_and_refused_files_do_not():
    trials = [
        Trial("float32", "onnx", 100, 1.0, None),
        Trial("float32", "tflite", 90, 1.0, None),
        Trial("uneven", "onnx", 30, 0.99, None),
        Trial("uneven", "tflite", 30, 0.5, None),
        Trial("even", "onnx", 40, 0.9, None),
        Trial("even", "tflite", 45, 0.91, None),
        Trial("as good", "onnx", 20, 0.9, None),
        Trial("as good", "tflite", 50, 0.9, None),
        Trial("refused", "onnx", 0, -math.inf, None, "why"),
        Trial("refused", "tflite", 0, -math.inf, None, "why"),
    ]
    assert Budget(100).best(trials) == "float32"
    assert Budget(99).best(trials) == "even"
    assert Budget(44).best(trials) == "uneven"
    with pytest.raises(QuantizationError, match="nothing fits 29 B: the smallest files, uneven, have 30 B"):
        Budget(29).best(trials)
    assert "refused: why" in str(Compression("bundle", "accuracy", 44, "uneven", trials))


def test_the_smallest_of_those_that_lose_little():
    trials = [
        Trial("float32", "onnx", 100, 30.0, None),
        Trial("float32", "tflite", 90, 31.0, None),
        Trial("small", "onnx", 30, 29.9, None),
        Trial("small", "tflite", 20, 30.8, None),
        Trial("smaller", "onnx", 12, 30.0, None),
        Trial("smaller", "tflite", 25, 30.5, None),
    ]
    assert Budget(None, 0.5).best(trials) == "smaller"
    assert Budget(None, 0.21).best(trials) == "small"  # Each format beside its own float files.
    assert Budget(None, 0.1).best(trials) == "float32"
    with pytest.raises(QuantizationError, match="loses at most 0.1: the nearest, small, loses 0.2"):
        Budget(60, 0.1).best(trials)
    printed = str(Compression("bundle", "BLEU", None, "small", trials, 0.21))
    assert "small *      onnx" in printed
    assert "smaller *    onnx" in printed
    assert "smaller    tflite" in printed
    assert printed.endswith("* loses at most 0.21")


@pytest.mark.exhaustive
def test_a_loss_is_approached_by_mixtures(tmp_path):
    """Each of the three halves the sizes between one that keeps the loss and one that does not; two may be the same."""
    command = [sys.executable, str(pathlib.Path(__file__).with_name("compress_worker.py")), str(tmp_path / "b"), "0.03"]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    trials = {each["candidate"]: each for each in found["trials"]}
    kept = [name for name, each in trials.items() if each["score"] >= -found["max_loss"]]
    assert 1 < len(kept) < len(trials)
    assert len(trials) in (3, 4)
    assert found["chosen"] == min(kept, key=lambda name: trials[name]["nbytes"]) != "float32"


@pytest.mark.exhaustive
def test_the_perplexity_of_a_text_is_that_of_the_rounded_weights(tmp_path):
    command = [sys.executable, str(pathlib.Path(__file__).with_name("compress_worker.py")), str(tmp_path / "b"), "text"]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    scores = {each["candidate"]: -each["score"] for each in found["trials"]}
    assert found["metric"] == "perplexity"
    assert scores["float32"] == 1
    assert abs(found["in_keras"] - 1) > 1e-3
    assert scores["int4"] == pytest.approx(found["in_keras"], rel=1e-4)


@pytest.mark.parametrize("budget, expected", [("20MB", 20_000_000), ("1.5 kb", 1500), (7, 7), ("2 GB", 2_000_000_000)])
def test_sizes(budget, expected):
    assert parse_size(budget) == expected


@pytest.mark.parametrize("budget", ["", "MB", "0", "-3", "20 MiB", "1e6"])
def test_what_is_no_size(budget):
    with pytest.raises(QuantizationError, match="such as '20MB'"):
        parse_size(budget)


def test_errors_come_before_anything_is_exported(tmp_path, monkeypatch):
    monkeypatch.setattr("keras_transformer.export.compression.compress.export", None)
    model, x = network(), np.ones((4, 64), "float32")
    before, target = model.get_weights(), tmp_path / "bundle"
    for budget, data, evaluation, words in (
        (
            "9 kB",
            x,
            Evaluation([x]),
            "the smallest weights have 11.3 kB, more than the budget of 9.0 kB",
        ),
        (None, x, Evaluation([x]), "needs a budget, such as '20MB', or max_loss"),
        ("1 MB", None, Evaluation([x]), "needs data"),
        ("1 MB", x, None, "evaluation must be an Evaluation"),
        ("1 MB", np.ones((4, 3), "float32"), Evaluation([x]), "64"),
    ):
        with pytest.raises(QuantizationError, match=words):
            compress(model, target, budget, data, evaluation, progress=False)
    assert not target.exists()
    assert all(np.array_equal(*pair) for pair in zip(before, model.get_weights(), strict=True))


def test_weights_are_restored():
    model = network()
    before = model.get_weights()
    candidate = Candidate(schemes=WeightScheme(3, 32), method="nearest")
    with rounded(model, candidate, candidate.schemes, None):
        assert not np.array_equal(before[0], model.get_weights()[0])
        assert len(model.quantized_weights) == 3
    assert all(np.array_equal(*pair) for pair in zip(before, model.get_weights(), strict=True))
    assert model.quantized_weights is None


@pytest.mark.slow
def test_trained_scales_are_those_of_a_copy():
    model, x = network(), np.random.default_rng(0).normal(size=(256, 64)).astype("float32")
    before, expected = model.get_weights(), model.predict(x, verbose=0)
    candidate, batches = Candidate(schemes=WeightScheme(2, 32)), [x[:96], x[96:192]] * 30
    lost, codes = {}, {}
    for trains in (False, True):
        candidate = dataclasses.replace(candidate, trains_scales=trains)
        with rounded(model, candidate, candidate.schemes, batches) as found:
            lost[trains] = np.square(found.predict(x[192:], verbose=0) - expected[192:]).mean()
            assert (found is model) == (not trains)
            codes[trains] = [each.codes for each in found.quantized_weights.values()]
    assert lost[True] < 0.98 * lost[False]
    assert all(np.array_equal(*pair) for pair in zip(*codes.values(), strict=True))
    assert all(np.array_equal(*pair) for pair in zip(before, model.get_weights(), strict=True))
    assert model.quantized_weights is None


def test_scales_of_probabilities_are_not_trained():
    model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(32, "softmax")])
    candidate = Candidate(schemes=WeightScheme(3, 32), trains_scales=True)
    with (
        pytest.raises(QuantizationError, match="probabilities"),
        rounded(model, candidate, candidate.schemes, np.ones((16, 64))),
    ):
        pass


def test_files_of_different_kinds(tmp_path, capsys):
    network().save(tmp_path / "model.keras")
    (tmp_path / "a.txt").write_text("some text")
    (tmp_path / "b.npz").write_bytes(b"")
    words = ["compress", str(tmp_path / "model.keras"), "--out", str(tmp_path / "out"), "--budget", "1MB", "--data"]
    assert cli.main([*words, str(tmp_path / "missing.npz")]) == 1
    assert "no such file" in capsys.readouterr().err
    assert cli.main([*words, str(tmp_path / "a.txt"), "--evaluate", str(tmp_path / "b.npz")]) == 1
    assert "must both be" in capsys.readouterr().err
    assert cli.main([*words, str(tmp_path / "a.txt")]) == 1
    assert "needs a model with a tokenizer" in capsys.readouterr().err
