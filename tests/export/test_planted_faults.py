"""Faults that are planted into the graph that is written, and must be refused; the reference is that of the sound model."""

import json
import pathlib
import subprocess
import sys

import pytest
from variants import exhaustive_but

pytestmark = pytest.mark.slow

WORKER = pathlib.Path(__file__).with_name("planted_worker.py")
MASKS = ("no mask", "inverted mask", "no mask beyond 64", "mask taken for lengths", "changed beyond 64")
BATCHES = ("batch of 2", "batch of 4", "batch of 7", "batches over 5", "batches of multiples of 8")
FAULTS = {
    "pictures": (*BATCHES, "pixels clipped", "white pixels", "clipped at 6", "clipped at 50", "one-sided padding"),
    "measurements": (
        *BATCHES,
        "numbers clipped",
        "clipped at 6",
        "clipped at 50",
        "prices clipped",
        "small values flushed",
    ),
    "sequences": (*BATCHES, "lengths of multiples of 8", "length of 1", "length of 33", "one value in a thousand"),
    "sensors": ("no number is NaN", "every number is finite", "NaN is 1", "infinities are large"),
    "resized": ("coordinates moved", "numbers scaled"),
    "encoder": (*MASKS, "positions zeroed", "last position", "last word", "norm", "epsilon", "activation"),
    "detector": MASKS,
    "decoder": ("late slot before", "late tokens of a step"),
    "translator": (
        "no mask",
        "no mask beyond 64",
        "mask taken for lengths",
        "long sources cut",
        "late words of a source",
    ),
    "unequal_blocks": ("small block",),
}
PAIRS = [(model, fault) for model, faults in FAULTS.items() for fault in faults]
QUICK = ("pictures", "sensors", "decoder")


@pytest.fixture(scope="module")
def results(tmp_path_factory, selected):
    directory = tmp_path_factory.mktemp("planted")
    names = sorted(selected("results", "model"))
    done = subprocess.run([sys.executable, WORKER, directory, *names], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads((directory / "results.json").read_text())


@pytest.mark.parametrize("model", exhaustive_but(FAULTS, *QUICK))
def test_a_sound_file_is_accepted(results, model):
    assert results[model]["sound"] <= 0.5


@pytest.mark.parametrize(("model", "fault"), exhaustive_but(PAIRS, *(each for each in PAIRS if each[0] in QUICK)))
def test_a_fault_is_refused(results, model, fault):
    assert results[model].keys() == {"sound", *FAULTS[model]}
    output = "both" if model == "unequal_blocks" else ""
    assert f"saved_model: output '{output}" in (results[model][fault] or "accepted")
    assert "differs from Keras" in results[model][fault]
