"""The Tiny Shakespeare example, in a process of its own, on verses that this file makes up."""

import hashlib
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from keras_transformer import load_model
from keras_transformer.export import load
from keras_transformer.text import Characters

pytestmark = pytest.mark.exhaustive

SCRIPT = Path(__file__).parents[2] / "examples" / "character_lm.py"
SPEAKERS = ("ROMEO", "First Citizen", "The king")
WORDS = ("to", "be", "or", "not", "that", "is", "the", "question", "whether", "'tis", "nobler", "in", "mind")


def verses(count):
    generator = np.random.default_rng(0)
    lines = (
        f"{generator.choice(SPEAKERS)}:\n{' '.join(generator.choice(WORDS, 7)).capitalize()}." for _ in range(count)
    )
    return "\n\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("character_lm", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    root = tmp_path_factory.mktemp("example")
    (root / "input.txt").write_text(verses(100), encoding="utf-8")
    environment = {**os.environ, "MPLBACKEND": "Agg"}
    words = ["--data-dir", ".", "--out", "out", "--quick"]
    process = subprocess.run(
        [sys.executable, SCRIPT, *words], cwd=root, env=environment, capture_output=True, text=True, timeout=900
    )
    assert process.returncode == 0, process.stderr
    return root, process


def test_the_loss_is_that_of_every_character_of_the_last_tenth(finished):
    root, process = finished
    text = (root / "input.txt").read_text()
    model = load_model(root / "out" / "model.keras")
    ids = np.array(model.tokenizer.encode(text[int(0.9 * len(text)) :]))
    losses = []
    for start in range(0, len(ids) - 1, 64):
        window, labels = ids[start : start + 64], ids[start + 1 : start + 65]
        window = window[: len(labels)]
        logits = model({"token_ids": window[None], "padding_mask": np.ones((1, len(window)), bool)})
        logits = np.asarray(logits, "float64")[0]
        losses += list(np.log(np.exp(logits).sum(-1)) - logits[np.arange(len(labels)), labels])
    assert len(losses) == len(ids) - 1
    pattern = r"validation loss: (\d\.\d{4}) nats per character, of ([\d,]+) in windows of 64\n"
    loss, count = re.search(pattern, process.stdout).groups()
    assert float(loss) == pytest.approx(np.mean(losses), abs=1e-4)
    assert int(count.replace(",", "")) == len(losses)
    assert json.loads((root / "out" / "history.json").read_text())["validation_loss"] == pytest.approx(
        float(loss), abs=1e-4
    )


def test_prints_the_curve_the_cost_and_the_same_texts_in_every_runtime(finished):
    _, process = finished
    assert process.stdout.count("val_loss") == 8
    assert re.search(r"trained for \d\.\d minutes, \d\.\d minutes of CPU time, with tensorflow \d", process.stdout)
    for sampler in ("greedy", "random"):
        assert process.stdout.count(f"--- {sampler}: ") == 4
        for runtime in ("saved_model", "tflite", "onnx"):
            assert f"{sampler}, {runtime}: 4 of 4 texts are those of Keras" in process.stdout


def test_leaves_a_model_and_a_bundle_that_continue_text(finished):
    root, _ = finished
    out = root / "out"
    history = json.loads((out / "history.json").read_text())
    assert len(history["loss"]) == len(history["val_loss"]) == 8
    assert history["val_loss"][-1] < history["val_loss"][0]
    assert (out / "curve.png").stat().st_size > 1000
    model, asked = load_model(out / "model.keras"), {"max_new_tokens": 30, "sampler": "random", "seed": 1}
    expected = model.generate("ROMEO:", **asked)
    assert len(set(expected)) > 3
    assert load(out / "bundle", "onnx").generate("ROMEO:", **asked) == expected


def test_the_network_has_the_size_of_nanogpts(example):
    model = example.build_model(Characters("abc"), example.SIZE)
    block = 12 * 128**2 + 4 * 128 + (512 + 128) + 2 * 2 * 128
    assert model.count_params() == (8 + 64) * 128 + 4 * block + 2 * 128
    assert model.max_length == 64


def test_a_download_is_checked(example, tmp_path, monkeypatch):
    (tmp_path / "remote.txt").write_bytes(b"what was meant")
    monkeypatch.setattr(example, "DATA_ADDRESS", (tmp_path / "remote.txt").as_uri())
    monkeypatch.setattr(example, "DATA_SHA256", hashlib.sha256(b"what was meant").hexdigest())
    assert example.download(tmp_path / "good").read_bytes() == b"what was meant"
    monkeypatch.setattr(example, "DATA_SHA256", hashlib.sha256(b"something else").hexdigest())
    with pytest.raises(ValueError, match="corrupted"):
        example.download(tmp_path / "bad")
