"""The benchmarks of memory, devices, callbacks, widths and plans run at toy size. Nothing here asserts speed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.exhaustive

FOLDER = Path(__file__).parents[2] / "benchmarks"
COMMANDS = {
    "memory": (["--only", "plain", "mixed_bfloat16, recompute"], {"tensors_mb", "step_s", "of_plain"}, 2),
    "scaling": (["--only", "tensorflow, 2 processes", "jax, 2 devices, weights split in 2"], {"step_s", "peak_mb"}, 2),
    "train_profile": (
        ["--networks", "encoder", "--modes", "xla", "--models", "ours", "keras_layers"],
        {"step_ms", "forward_ms", "backward_ms", "optimizer_ms", "random_ms", "call_ms"},
        2,
    ),
    "large_vocabulary": (
        ["--modes", "xla", "--rivals", "ours", "keras_layers"],
        {"step_s", "peak_mb", "step_s_ratio", "peak_mb_ratio"},
        2,
    ),
    "sharded_loading": ([], {"part_mb", "peak_mb", "peak_of_part"}, 2),
    "monitoring_cost": ([], {"callback", "percent", "first_step_s"}, 4),
    "width_transfer": (["--data-dir", "{folder}"], {"parametrization", "width", "rate", "loss"}, 12),
    "planning": (
        ["--only", "large vocabulary", "encoder and decoder"],
        {"predicted_mb", "measured_mb", "predicted_s", "measured_s", "memory_of_measured", "time_of_measured"},
        2,
    ),
}


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("benchmarks")
    (folder / "input.txt").write_text("Speak, speak. First, you know. " * 200, encoding="utf-8")
    running = {}
    environment = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}
    for name, (options, _, _) in COMMANDS.items():
        command = [sys.executable, str(FOLDER / f"{name}.py"), "--tiny", "--rounds", "1"]
        command += [option.format(folder=folder) for option in options]
        command += ["--json", str(folder / f"{name}.json")]
        running[name] = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
    for process in running.values():
        _, errors = process.communicate()
        assert process.returncode == 0, errors.decode()[-2000:]
    return {name: json.loads((folder / f"{name}.json").read_text()) for name in COMMANDS}


@pytest.mark.parametrize("name", COMMANDS)
def test_runs(tables, name):
    _, columns, count = COMMANDS[name]
    rows = tables[name]["rows"]
    assert len(rows) == count
    for row in rows:
        assert columns <= set(row), row
        assert all(row[column] is not None for column in columns)
