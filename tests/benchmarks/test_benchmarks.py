"""Each benchmark runs at toy size, and what it prints is what it writes. Nothing here asserts speed."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
COMMANDS = {
    "train_step": (["--networks", "encoder", "--modes", "plain", "--batch-size", "2"], {"ours_ms", "peer_ms", "ratio"}),
    "inference": (["--formats", "onnx", "--batch-sizes", "1", "--repeat", "1"], {"ours_ms", "peer_ms", "ratio"}),
    "gpu_training": (["--device", "cpu", "--networks", "decoder", "--no-torch"], {"samples_per_s", "tflops"}),
}


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """The benchmarks run side by side, since each mostly waits for imports: name -> (printed, JSON, errors)."""
    pytest.importorskip("keras_hub")
    directory = tmp_path_factory.mktemp("benchmarks")
    running = {name: _start(name, options, directory) for name, (options, _) in COMMANDS.items()}
    return {name: _finish(name, process, directory) for name, process in running.items()}


def _start(name, options, directory):
    command = [sys.executable, f"benchmarks/{name}.py", "--tiny", "--rounds", "2", *options]
    command += ["--steps", "1"] if name == "gpu_training" else []
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([*command, "--json", str(directory / name)], cwd=ROOT, env=environment, **pipes)


def _finish(name, process, directory):
    printed, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return printed, json.loads((directory / name).read_text())


@pytest.mark.parametrize("name", COMMANDS)
def test_the_table_is_the_json(name, reports):
    printed, report = reports[name]
    lines = printed.splitlines()
    start = next(index for index, line in enumerate(lines) if line.startswith("network "))
    spans = [match.span() for match in re.finditer("-+", lines[start + 1])]
    cells = [[line[begin:end].strip() for begin, end in spans] for line in lines[start:]]
    columns = cells[0]
    assert COMMANDS[name][1] <= set(columns)
    for found, row in zip(cells[2:], report["rows"], strict=False):
        assert found == ["-" if row.get(column) is None else str(row[column]) for column in columns]
    assert all(note in lines for note in report["notes"])
    assert report["title"] == lines[0]


@pytest.mark.parametrize("name", ["train_step", "inference"])
def test_every_ratio_is_of_a_peer_in_the_same_run(name, reports):
    rows = [row for row in reports[name][1]["rows"] if "ratio" in row]
    assert {row["peer"] for row in rows} >= {"keras_hub" if name == "train_step" else "keras_hub, our export"}
    for row in rows:
        assert row["low"] <= row["ratio"] <= row["high"]


def test_without_a_gpu_it_says_so(reports):
    assert any("say nothing about a GPU" in note for note in reports["gpu_training"][1]["notes"])


def _import(name):
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        return __import__(name)
    finally:
        sys.path.pop(0)


def test_the_flops_of_gpt2_small():
    """124,439,808 parameters: 6 N T and 12 L T² D of one sequence of 1024."""
    flops, networks = _import("flops"), _import("networks")
    measures = networks.Measures(num_layers=12, hidden_dim=768, length=1024)
    assert flops.training_flops(124_439_808, measures, 1024, 1) == 764_558_180_352 + 115_964_116_992


def test_the_peak_of_a_device_by_its_name():
    flops = _import("flops")
    assert flops.peak_tflops("NVIDIA H100 PCIe") == 756
    assert flops.peak_tflops("NVIDIA A100-SXM4-80GB") == 312
    assert flops.peak_tflops("NVIDIA L40S") == 362
    assert flops.peak_tflops("an abacus") is None


def test_rivals_take_turns_and_the_ratio_is_of_neighbouring_turns():
    measure = _import("measure")
    called = []

    def rival(name, seconds):
        return lambda: called.append(name) or measure.Turn(seconds * len(called), seconds)

    turns = measure.take_turns({"a": rival("a", 1), "b": rival("b", 2)}, rounds=2)
    assert called == ["a", "b", "b", "a"]
    assert [turn.wall for turn in turns["a"]] == [1, 4]
    found = measure.ratio(turns["a"], turns["b"])  # 1/4 and 4/6
    assert found == {"ratio": 0.458, "low": 0.354, "high": 0.562, "cpu_ratio": 0.5}


def test_networks_that_differ_are_refused():
    networks = _import("networks")
    tiny = networks.ENCODER._replace(**networks.TINY)
    networks.same_weights(networks.our_encoder(tiny), networks.plain_encoder(tiny))
    with pytest.raises(AssertionError, match="keras_layers"):
        networks.same_weights(networks.our_encoder(tiny), networks.plain_encoder(tiny._replace(num_layers=2)))
