"""The other benchmarks at toy size, which export, convert or train for longer. Nothing here asserts speed."""

import json
import os
import subprocess
import sys

import pytest

from benchmark_reports import ROOT, Command, check_table

pytestmark = pytest.mark.exhaustive

TURNS = ["--rounds", "2"]
COMMANDS = {
    "soak": Command(
        ["soak", "--tiny", "--minutes", "0.2", "--every", "5"],
        {"minute", "MB", "threads", "files", "arrays", "texts", "streams", "left", "wrong", "refused", "failed"},
    ),
    "inference": Command(
        ["inference", *TURNS, "--formats", "onnx", "--batch-sizes", "1", "--repeat", "1"],
        {"ours_ms", "peer_ms", "ratio"},
    ),
    "engine_load": Command(
        ["engine_load", "--requests", "40", "--loads", "1.0"],
        {"load", "accepted", "answered", "same_tokens", "of_offline", "first_token_ms", "between_tokens_ms"},
    ),
    "latent_attention": Command(["latent_attention"], {"mode", "peer", "difference", "ratio"}),
    "hybrid_prefill": Command(
        ["hybrid_prefill", "--only", "gated_delta_net", "kimi_delta_attention"],
        {"recurrence", "n", "whole_ms", "loop_ms", "difference"},
    ),
    "accelerators": Command(
        ["accelerators", "--tiny", "--targets", "xnnpack"],
        {"model", "target", "nodes", "taken", "difference"},
    ),
    "accelerator_tasks": Command(
        ["accelerator_tasks", "--task", "cifar10", "--target", "xnnpack", "--precisions", "float", "int8_static"],
        {"precision", "nodes", "rows", "keras", "cpu", "score", "lost", "agreement", "from_cpu"},
    ),
    "every_model": Command(
        ["every_model", "--only", "Encoder", "--formats", "onnx"],
        {"model", "float32 onnx", "int8 onnx"},
    ),
    "quantized_tasks": Command(
        ["quantized_tasks", "--task", "cifar10", "--formats", "onnx"],
        {"float_score", "score", "agreement", "of_float"},
    ),
    "full_int8": Command(
        ["full_int8", *TURNS, "--networks", "small CNN"],
        {"network", "format", "file", "accuracy", "lost", "bytes", "of_float"},
    ),
    "micro": Command(
        ["micro", "--networks", "keyword spotter"],
        {"network", "float", "int8", "lost", "bytes", "array", "arena", "equal", "npu", "cycles", "milliseconds"},
    ),
    "train_step": Command(
        ["train_step", *TURNS, "--networks", "encoder", "--modes", "plain", "--batch-size", "2"],
        {"ours_ms", "peer_ms", "ratio"},
    ),
    "gpu_training": Command(
        ["gpu_training", *TURNS, "--steps", "1", "--device", "cpu", "--networks", "bert_base", "gpt2_medium"]
        + ["--no-torch"],
        {"samples_per_s", "tflops"},
    ),
    "peers": Command(
        ["export_vs_peers", *TURNS, "--repeat", "1", "--networks", "encoder", "--only", "eager"]
        + ["--groups", "fp32", "tflite", "decoder", "--sizes", "1x4"],
        {"ours_ms", "peer_ms", "ratio", "of_scale", "tokens_per_s", "peer_tokens_per_s", "same_text"},
    ),
    "quantization_methods": Command(
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
    "quantized_training": Command(
        ["quantized_training", "--formats", "onnx", "--ways", "teacher"],
        {"scheme", "way", "seed", "keras", "onnx", "lost", "kB", "minutes"},
    ),
    "export_cost": Command(
        ["export_cost", "--formats", "tflite", "onnx"],
        {"network", "seconds", "peak GB"},
    ),
    "large_model": Command(
        ["large_model", "--formats", "onnx", "--precisions", "int8"],
        {"format", "precision", "seconds", "peak GB", "file GB", "perplexity"},
    ),
    "real_llm": Command(
        ["real_llm", *TURNS],
        {"task", "engine", "ms", "tokens/s", "same_tokens", "ratio", "GB"},
    ),
    "gate_power": Command(
        ["gate_power", "--formats", "onnx"],
        {"faults", "caught", "by weights", "by outputs", "sound", "refused"},
    ),
    "gate_clean": Command(
        ["gate_clean", "--formats", "onnx"],
        {"model", "fresh onnx", "trained onnx", "extreme onnx"},
    ),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_table_is_the_json(name, reports):
    check_table(reports[name], COMMANDS[name].columns)


def test_every_ratio_is_of_a_peer_in_the_same_run(reports):
    rows = [row for row in reports["train_step"][1]["rows"] if "ratio" in row]
    assert {row["peer"] for row in rows} >= {"keras_hub"}
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


def test_the_gate_refuses_planted_faults_and_no_sound_file(reports):
    (row,) = reports["gate_power"][1]["rows"]
    assert row["caught"] == row["faults"] == 6
    assert (row["sound"], row["refused"]) == (3, 0)
    (row,) = reports["gate_clean"][1]["rows"]
    assert all(0 < row[f"{weights} onnx"] < 1 for weights in ("fresh", "trained", "extreme"))


def test_without_a_gpu_it_says_so(reports):
    report = reports["gpu_training"][1]
    assert any("say nothing about a GPU" in note for note in report["notes"])
    assert [(row["network"], row["dtype"]) for row in report["rows"]] == [
        ("bert_base", "bfloat16"),
        ("gpt2_medium", "bfloat16"),
    ]


def test_bytes_of_a_step(tmp_path):
    written = tmp_path / "bytes.json"
    command = [sys.executable, ROOT / "benchmarks/step_bytes.py", "--tiny", "--json", written]
    subprocess.run(command, env={**os.environ, "KERAS_BACKEND": "jax"}, check=True, capture_output=True)
    for row in json.loads(written.read_text())["rows"]:
        assert row["donated"] == 1
        # A step reads and writes its state, the gradients and the activations at least, and those are not nothing.
        assert 1 < row["ratio"] < 100
        assert row["needed_gb"] > 2 * (row["state_gb"] + row["activations_gb"]) > 4 * row["activations_gb"] > 0


def test_what_an_export_says_of_itself(reports):
    (row,) = reports["every_model"][1]["rows"]
    assert float(row["float32 onnx"]) <= 1e-5
    ratio, share = map(float, row["int8 onnx"].split())
    assert 1e-4 < ratio < 0.2
    assert 0.2 < share < 1
    (row,) = reports["quantized_tasks"][1]["rows"]
    assert row["change"] == pytest.approx(row["score"] - row["float_score"], abs=0.011)
    assert 0.8 < row["agreement"] <= 1


def test_our_files_of_integers_are_as_small_as_those_of_others(reports):
    rows = reports["full_int8"][1]["rows"]
    sizes = {(row["format"], row["file"]): row["bytes"] for row in rows}
    for format, peer in {"tflite": "TensorFlow", "onnx": "onnxruntime"}.items():
        whole, ours = (sizes[format, file] for file in ("float32", "ours, mse"))
        assert 0.25 < ours / whole < 0.32
        assert ours <= sizes[format, peer]


def test_a_keyword_spotter_is_whole_in_integers(reports):
    (row,) = reports["micro"][1]["rows"]
    assert row["equal"] == row["npu"] == "12 of 12"
    assert 22_000 < row["arena"] < 28_000  # The largest layer, its input and its output: 2 x 8,000 bytes.
    assert row["array"] < 0.7 * row["bytes"]


def test_scores_on_an_accelerator_are_of_the_same_rows(reports):
    rows = reports["accelerator_tasks"][1]["rows"]
    assert [(row["precision"], row["rows"]) for row in rows] == [("float", 6), ("int8_static", 6)]
    assert rows[0]["from_cpu"] <= 1e-4
    assert (rows[0]["lost"], rows[0]["agreement"]) == (0, 100)
    for row in rows:
        assert row["lost"] == pytest.approx(row["keras"] - row["score"], abs=0.011)
        taken, nodes = map(int, row["nodes"].split(" of "))
        assert 0 < taken <= nodes


def test_every_ratio_of_inference_is_of_a_peer_and_between_its_bounds(reports):
    rows = [row for row in reports["inference"][1]["rows"] if "ratio" in row]
    assert {row["peer"] for row in rows} >= {"keras_hub, our export"}
    for row in rows:
        assert row["low"] <= row["ratio"] <= row["high"]


def test_every_accepted_request_is_answered_as_it_is_alone(reports):
    together, row = reports["engine_load"][1]["rows"]
    assert together["answered"] == together["same_tokens"] == "40/40"
    assert row["accepted"] == 40
    assert row["answered"] == row["same_tokens"] == "34/34"
    assert row["failed"] == 2


def test_all_forms_of_latent_attention_compute_the_same(reports):
    rows = reports["latent_attention"][1]["rows"]
    assert [(row["mode"], row["peer"]) for row in rows] == [
        ("prefill", "transformers"),
        ("prefill", "transformers, padded values"),
        ("decode", "transformers"),
        ("decode", "torch, absorbed"),
    ]
    for row in rows:
        assert row["difference"] < 1e-5
        assert row["ratio"] > 0


def test_prefill_and_its_loop_compute_the_same(reports):
    rows = reports["hybrid_prefill"][1]["rows"]
    assert [(row["recurrence"], row["n"]) for row in rows] == [("gated_delta_net", 64), ("kimi_delta_attention", 64)]
    for row in rows:
        assert row["difference"] < 1e-4
        assert row["whole_ms"] > 0
        assert row["loop_ms"] > 0


def test_a_server_under_load_answers_all_and_refuses_what_is_wrong(reports):
    rows = reports["soak"][1]["rows"]
    assert all(row["failed"] == 0 for row in rows)
    assert all(row["refused"] == row["wrong"] > 0 for row in rows)
    assert all(min(row["arrays"], row["left"]) > 0 for row in rows)
