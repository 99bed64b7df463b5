"""Each benchmark runs at toy size, and what it prints is what it writes. Nothing here asserts speed."""

import json
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

pytestmark = pytest.mark.slow

ROOT = pathlib.Path(__file__).parents[2]
WORKER = pathlib.Path(__file__).with_name("benchmark_worker.py")
TURNS = ["--rounds", "2"]
# Name -> the script and its options, and columns that its table must have.
COMMANDS = {
    "train_step": (
        ["train_step", *TURNS, "--networks", "encoder", "--modes", "plain", "--batch-size", "2"],
        {"ours_ms", "peer_ms", "ratio"},
    ),
    "inference": (
        ["inference", *TURNS, "--formats", "onnx", "--batch-sizes", "1", "--repeat", "1"],
        {"ours_ms", "peer_ms", "ratio"},
    ),
    "gpu_training": (
        ["gpu_training", *TURNS, "--steps", "1", "--device", "cpu", "--networks", "decoder", "--no-torch"],
        {"samples_per_s", "tflops"},
    ),
    "peers": (
        ["export_vs_peers", *TURNS, "--repeat", "1", "--networks", "encoder", "--only", "eager"]
        + ["--groups", "fp32", "tflite", "decoder", "--sizes", "1x4"],
        {"ours_ms", "peer_ms", "ratio", "of_scale", "tokens_per_s", "peer_tokens_per_s", "same_text"},
    ),
    "accelerators": (
        ["accelerators", "--tiny", "--targets", "xnnpack"],
        {"model", "target", "nodes", "taken", "difference"},
    ),
    "accelerator_tasks": (
        ["accelerator_tasks", "--task", "cifar10", "--target", "xnnpack", "--precisions", "float", "int8_static"],
        {"precision", "nodes", "rows", "keras", "cpu", "score", "lost", "agreement", "from_cpu"},
    ),
    "every_model": (
        ["every_model", "--only", "Encoder", "--formats", "onnx"],
        {"model", "float32 onnx", "int8 onnx"},
    ),
    "quantized_tasks": (
        ["quantized_tasks", "--task", "cifar10", "--formats", "onnx"],
        {"float_score", "score", "agreement", "of_float"},
    ),
    "quantization_methods": (
        [
            "quantization_methods",
            "--schemes",
            "4/32+min",
            "--methods",
            "awq, gptq",
            "rotate+clipping+scales",
            "keras_gptq",
        ]
        + ["onnxruntime"],
        {"scheme", "method", "MB", "perplexity", "minutes", "peak GB"},
    ),
    "quantized_training": (
        ["quantized_training", "--formats", "onnx", "--ways", "teacher"],
        {"scheme", "way", "seed", "keras", "onnx", "lost", "kB", "minutes"},
    ),
    "export_cost": (
        ["export_cost", "--formats", "tflite", "onnx"],
        {"network", "seconds", "peak GB"},
    ),
    "large_model": (
        ["large_model", "--formats", "onnx", "--precisions", "int8"],
        {"format", "precision", "seconds", "peak GB", "file GB", "perplexity"},
    ),
    "real_llm": (
        ["real_llm", *TURNS],
        {"task", "engine", "ms", "tokens/s", "same_tokens", "ratio", "GB"},
    ),
    "gate_power": (
        ["gate_power", "--formats", "onnx"],
        {"faults", "caught", "by weights", "by outputs", "sound", "refused"},
    ),
    "gate_clean": (
        ["gate_clean", "--formats", "onnx"],
        {"model", "fresh onnx", "trained onnx", "extreme onnx"},
    ),
    "backbones": (
        ["backbones", "--only", "bert", "--formats", "onnx", "--ours-only"],
        {"backbone", "ours onnx"},
    ),
    "grammar": (
        ["grammar"],
        {"grammar", "valid", "finished", "extra_ms", "extra_percent"},
    ),
    "conversation": (
        ["conversation"],
        {"engine", "seconds", "calls", "most_in_a_turn", "tokens_read", "same_answers", "from_whole", "bit_equal"},
    ),
}
# These set threads or a policy for their whole process.
ALONE = ("train_step", "inference", "gpu_training")


class Reports:
    """What benchmarks printed and wrote: name -> (printed, JSON).

    Args:
        directory: where they wrote.
    """

    def __init__(self, directory):
        self.directory = directory

    def __getitem__(self, name):
        printed = (self.directory / f"{name}.txt").read_text()
        assert (self.directory / name).exists(), printed[-3000:]
        return printed, json.loads((self.directory / name).read_text())


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """Most benchmarks run in one process, since each mostly imports."""
    for needed in ("keras_hub", "torch", "transformers"):
        pytest.importorskip(needed)
    directory = tmp_path_factory.mktemp("benchmarks")
    for names in ([name for name in COMMANDS if name not in ALONE], *([name] for name in ALONE)):
        _run({name: _words(name, directory) for name in names}, directory)
    return Reports(directory)


def _words(name, directory):
    script, *options = COMMANDS[name][0]
    return [str(ROOT / f"benchmarks/{script}.py"), "--tiny", *options, "--json", str(directory / name)]


def _run(commands, directory):
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow"}
    words = [sys.executable, str(WORKER), str(directory)]
    given = {"input": json.dumps(commands), "capture_output": True, "text": True}
    done = subprocess.run(words, cwd=ROOT, env=environment, timeout=900, **given)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_table_is_the_json(name, reports):
    printed, report = reports[name]
    lines = printed[printed.index(report["title"]) :].splitlines()  # Converters may print before.
    start = next(index for index, line in enumerate(lines) if set(line) == {"-", " "}) - 1
    spans = [match.span() for match in re.finditer("-+", lines[start + 1])]
    cells = [[line[begin:end].strip() for begin, end in spans] for line in lines[start:]]
    columns = cells[0]
    assert COMMANDS[name][1] <= set(columns)
    assert report["rows"]
    for found, row in zip(cells[2:], report["rows"], strict=False):
        assert found == ["-" if row.get(column) is None else str(row[column]) for column in columns]
    assert all(note in lines for note in report["notes"])


@pytest.mark.parametrize("name", ["train_step", "inference"])
def test_every_ratio_is_of_a_peer_in_the_same_run(name, reports):
    rows = [row for row in reports[name][1]["rows"] if "ratio" in row]
    assert {row["peer"] for row in rows} >= {"keras_hub" if name == "train_step" else "keras_hub, our export"}
    for row in rows:
        assert row["low"] <= row["ratio"] <= row["high"]


def test_a_peer_takes_part_when_its_file_computes_what_ours_does(reports):
    rows = reports["peers"][1]["rows"]
    peers = {(row["network"], row.get("kind"), row["peer"].removesuffix(" (best)")) for row in rows}
    assert peers >= {
        ("encoder", None, "torch eager"),
        ("encoder", None, "KerasHub, ONNX Runtime"),
        ("encoder", "fp32", "KerasHub, fp32"),
        ("encoder", "int8", "KerasHub, int8"),
    }
    of_scale = {row["kind"]: row["of_scale"] for row in rows if "of_scale" in row}
    assert of_scale["fp32"] <= 1e-5 < of_scale["int8"] <= 0.1


def test_generation_is_of_the_same_text(reports):
    rows = [row for row in reports["peers"][1]["rows"] if row["network"] == "decoder"]
    assert {row["kind"] for row in rows} == {"ONNX, fp32", "ONNX, int8", "TFLite, fp32", "TFLite, int8"}
    assert {row["peer"] for row in rows} >= {"KerasHub, XLA", "Hugging Face, torch"}
    assert all(row["same_text"] for row in rows if row["kind"].endswith("fp32"))


def test_what_an_export_says_of_itself(reports):
    (row,) = reports["every_model"][1]["rows"]
    assert float(row["float32 onnx"]) <= 1e-5
    ratio, share = map(float, row["int8 onnx"].split())
    assert 1e-4 < ratio < 0.2
    assert 0.2 < share < 1
    (row,) = reports["backbones"][1]["rows"]
    assert float(row["ours onnx"]) <= 1e-5
    (row,) = reports["quantized_tasks"][1]["rows"]
    assert row["change"] == pytest.approx(row["score"] - row["float_score"], abs=0.011)
    assert 0.8 < row["agreement"] <= 1


def test_scores_on_an_accelerator_are_of_the_same_rows(reports):
    rows = reports["accelerator_tasks"][1]["rows"]
    assert [(row["precision"], row["rows"]) for row in rows] == [("float", 6), ("int8_static", 6)]
    assert rows[0]["from_cpu"] <= 1e-4
    assert (rows[0]["lost"], rows[0]["agreement"]) == (0, 100)
    for row in rows:
        assert row["lost"] == pytest.approx(row["keras"] - row["score"], abs=0.011)
        taken, nodes = map(int, row["nodes"].split(" of "))
        assert 0 < taken <= nodes


def test_the_gate_refuses_planted_faults_and_no_sound_file(reports):
    (row,) = reports["gate_power"][1]["rows"]
    assert row["caught"] == row["faults"] == 6
    assert (row["sound"], row["refused"]) == (3, 0)
    (row,) = reports["gate_clean"][1]["rows"]
    assert all(0 < row[f"{weights} onnx"] < 1 for weights in ("fresh", "trained", "extreme"))


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


def test_rivals_take_turns_and_the_ratio_is_of_neighboring_turns():
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


def test_kerashub_with_our_weights_computes_what_ours_does():
    pytest.importorskip("keras_hub")
    networks, hub_weights = _import("networks"), _import("hub_weights")
    tiny = networks.ENCODER._replace(**networks.TINY, vocabulary_size=50, dropout=0.0)._replace(num_layers=2)
    random = np.random.default_rng(0)
    images = random.random((2, tiny.image_size, tiny.image_size, 3), "float32")
    text = {"token_ids": random.integers(0, 50, (2, 8)), "padding_mask": np.arange(8) < np.array([[8], [5]])}
    for ours, hub, inputs in (
        (networks.our_vit, networks.hub_vit, images),
        (networks.our_encoder, networks.hub_encoder, text),
    ):
        model = networks.trained_looking(ours(tiny))
        peer = hub_weights.with_our_weights(hub(tiny), model)
        is_text = np.asarray(text["padding_mask"]) if inputs is text else ...
        expected = np.asarray(model(inputs, training=False))[is_text]
        np.testing.assert_allclose(np.asarray(peer(inputs, training=False))[is_text], expected, atol=1e-5)


def test_engines_talk_alike_and_read_a_turn_in_one_call(reports):
    rows = reports["conversation"][1]["rows"]
    assert [row["engine"] for row in rows] == ["keras", "onnx"]
    for row in rows:
        assert row["same_answers"] == "4/4"
        assert (row["reading_calls"], row["most_in_a_turn"]) == (4, 1)
        assert row["tokens_read"] >= row["tokens"] > 60
        assert row["from_whole"] < 1e-5
        assert row["bit_equal"]
