"""The example for many devices, at toy size on virtual ones, ended and begun again."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.exhaustive

SCRIPT = Path(__file__).parents[2] / "examples" / "distributed_training.py"
RUNS = {
    "language": ("tensorflow", ["--devices", "2", "--recompute"]),
    "image": ("jax", ["--model", "image", "--devices", "4", "--model-parallel", "2"]),
    "sharded": ("jax", ["--devices", "4", "--fully-sharded"]),
}


def start(name, folder, *words):
    backend, options = RUNS[name]
    environment = {**os.environ, "KERAS_BACKEND": backend}
    environment.pop("TF_CONFIG", None)
    command = [sys.executable, str(SCRIPT), "--quick", "--checkpoints", str(folder / name), *options, *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("example")
    running = {name: start(name, folder) for name in RUNS}
    found = {}
    for name, process in running.items():
        out, errors = process.communicate()
        assert process.returncode == 0, errors[-2000:]
        found[name] = out
    again = start("language", folder)
    found["again"], _ = again.communicate()
    return found


@pytest.mark.parametrize("name", RUNS)
def test_learns(printed, name):
    losses = [float(each) for each in re.findall(r"- loss: ([\d.]+)", printed[name])]
    assert len(losses) == 2
    assert losses[1] < losses[0]


def test_what_is_done_is_not_done_again(printed):
    assert "Epoch" not in printed["again"]
    assert printed["again"].splitlines()[-1] == printed["language"].splitlines()[-1]
