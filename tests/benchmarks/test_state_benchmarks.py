"""The benchmarks of models with a state at toy size. Nothing here asserts speed."""

import json
import math
import os
import pathlib
import subprocess
import sys

import pytest

pytestmark = pytest.mark.exhaustive

ROOT = pathlib.Path(__file__).parents[2]
LETTERS = "abcdefghijklmnop\n"
COMMANDS = {
    "state": ["--only", "gpt", "yoco", "retnet"],
    "shakespeare": ["--only", "gpt", "rwkv"],
    "recurrences": ["--modes", "train"],
}


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """All run side by side: name -> what each wrote as JSON."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    directory = tmp_path_factory.mktemp("benchmarks")
    (directory / "input.txt").write_text(LETTERS * 1200)
    commands = {**COMMANDS, "shakespeare": [*COMMANDS["shakespeare"], "--data-dir", str(directory)]}
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow"}
    running = {}
    for name, options in commands.items():
        command = [sys.executable, f"benchmarks/{name}.py", "--tiny", *options, "--json", str(directory / name)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        running[name] = subprocess.Popen(command, cwd=ROOT, env=environment, **pipes)
    for process in running.values():
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors[-3000:]
    return {name: json.loads((directory / name).read_text()) for name in running}


def test_caches_of_fixed_size_beside_one_that_grows(reports):
    rows = reports["state"]["rows"]
    assert [(row["mode"], row["model"], row["context"]) for row in rows] == [
        *(("decoding", model, context) for model in ("gpt", "yoco", "retnet") for context in (64, 128)),
        *(("prefill", model, 64) for model in ("gpt", "yoco", "retnet")),
    ]
    sizes = {(row["model"], row["context"]): row["cache_mb"] for row in rows if row["mode"] == "decoding"}
    # Two layers of keys and values, 16 wide, for 64 or 128 tokens and one more, rounded up to whole blocks of 32.
    for context, slots in ((64, 96), (128, 160)):
        assert sizes["gpt", context] == pytest.approx(2 * 2 * 16 * 4 * slots / 2**20, abs=6e-4)
        # One pair for both layers, beside the window of one.
        assert sizes["yoco", context] == pytest.approx(2 * 16 * 4 * (slots + 512) / 2**20, abs=6e-4)
    assert sizes["retnet", 64] == sizes["retnet", 128] == pytest.approx(2 * 2 * 8 * 16 * 4 / 2**20, abs=6e-4)
    assert all(row["ms"] > 0 and (row["of_gpt"] is None) == (row["model"] == "gpt") for row in rows)
    assert sum("times as long at 128 as at 64" in note for note in reports["state"]["notes"]) == 3


def test_loss_on_held_out_text(reports):
    rows = reports["shakespeare"]["rows"]
    assert [row["architecture"] for row in rows] == ["gpt", "rwkv"]
    width, vocabulary = 32, 5 + len(LETTERS)  # And the special tokens.
    # Embeddings, which are the head too; 4 D² and 2 · 2 D² with biases, two norms; and one norm at the end.
    block = 4 * (width**2 + width) + 4 * width**2 + 3 * width + 4 * width
    assert rows[0]["parameters"] == vocabulary * width + 64 * width + block + 2 * width
    for row in rows:
        assert 0 < row["loss"] < 1.2 * math.log(vocabulary)


def test_both_compute_the_same(reports):
    rows = reports["recurrences"]["rows"]
    assert [(row["layer"], row["peer"], row["n"]) for row in rows] == [
        ("retention", "parallel", 1024),
        ("retention", "chunks of 512", 1024),
        ("time_mixing", "Hugging Face", 1024),
        ("s4d", "Fourier transform", 1024),
        ("gated_delta_net", "transformers", 1024),
        ("gated_delta_net", "transformers, token by token", 1024),
        ("kimi_delta_attention", "transformers", 1024),
        ("rwkv7_time_mixing", "token by token", 1024),
        ("lightning_attention", "transformers", 1024),
        ("mamba2", "transformers", 1024),
    ]
    for row in rows:
        assert row["difference"] < 1e-4
        assert row["ratio"] > 0
