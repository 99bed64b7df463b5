"""Exported checkpoints compute in every runtime what transformers computes: one of each kind of head and of input.

`benchmarks/every_checkpoint.py` does it for one of each model type, or for all.
"""

import json
import os
import pathlib
import subprocess
import sys

import pytest

pytestmark = pytest.mark.exhaustive

ROOT = pathlib.Path(__file__).parents[2]
FOLDERS = (
    "bert-MultipleChoice",
    "d_fine-ObjectDetection",  # Selected queries, and gathers of pixels.
    "gemma-CausalLM",  # A single key and value head.
    "marian-MTModel",
    "paligemma-ConditionalGeneration",  # A prefix language model with images.
    "qwen2_5_vl-ConditionalGeneration",  # Windows of patches, several images of any shape in a text.
    "siglip2-Model",  # Patches of images of any shape.
    "swin-ImageClassification",
    "vits-Model",  # Noise, and frames of their own number.
    "wav2vec2-CTC",  # Raw samples, with frames of their own mask.
)
FORMATS = ("saved_model", "tflite", "onnx")


@pytest.fixture(scope="module")
def figures(tmp_path_factory):
    file = tmp_path_factory.mktemp("checkpoints") / "figures.json"
    command = [sys.executable, "benchmarks/every_checkpoint.py", "--only", *FOLDERS, "--json", str(file)]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow"}
    subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600)
    return {row["checkpoint"]: row for row in json.loads(file.read_text())["rows"]}


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_runtime_computes_what_transformers_computes(figures, folder):
    found = figures[folder]
    assert "error" not in found, found["error"]
    assert max(found[format] for format in FORMATS) <= 2e-6
    assert found.get("same") == found.get("texts")
