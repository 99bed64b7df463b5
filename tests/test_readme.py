"""The Python in the README runs as it stands, on random images in place of the download."""

import re
import shutil
from pathlib import Path

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file

pytestmark = pytest.mark.slow

README = Path(__file__).parents[1] / "README.md"
CHECKPOINT = Path(__file__).parent / "data" / "checkpoints" / "sentence-bert"
BOUNDS = ", min_agreement=0.98, max_loss=0.005"


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="exports in this process")
def test_python_blocks_run_one_after_the_other(monkeypatch, tmp_path, capsys):
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (64, 28, 28)).astype("uint8"), rng.integers(0, 10, 64)
    monkeypatch.setattr(keras.datasets.fashion_mnist, "load_data", lambda: ((images, labels), (images[:8], labels[:8])))
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert len(blocks) == 5
    (tmp_path / "input.txt").write_text("To be, or not to be: that is the question.\n" * 200)
    shutil.copytree(CHECKPOINT, tmp_path / "bert-folder")
    names = {}
    for block in blocks:
        # Of eight random images one may well get another answer.
        block = block.replace("steps_per_epoch=100", "steps_per_epoch=2").replace(BOUNDS, "")
        exec(compile(block, str(README), "exec"), names)
    assert {path.name for path in (tmp_path / "fashion").iterdir()} >= {"saved_model", "model.tflite", "model.onnx"}
    assert {path.name for path in (tmp_path / "writer").iterdir()} >= {"tokenizer", "model.tflite", "model.weights"}
    written = load_file(tmp_path / "bert-again" / "model.safetensors")
    np.testing.assert_equal(written, load_file(CHECKPOINT / "model.safetensors"))
    options = {"max_new_tokens": 12, "sampler": "greedy"}
    assert names["phone"].generate("To be", **options) == names["writer"].generate("To be", **options)
    assert names["second"].result() == names["writer"].generate("To be, or", max_new_tokens=20)
    probabilities = names["classify"](images=names["x_test"][:1])["probabilities"]
    np.testing.assert_allclose(probabilities, names["model"].predict(names["x_test"][:1], verbose=0), atol=1e-5)
    assert names["maps"]["encoder_block_0/self_attention"].shape == (2, 4, 50, 50)
