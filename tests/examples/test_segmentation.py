"""The example of drawn masks, in a process of its own, with a few small steps."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "segmentation.py"


@pytest.mark.exhaustive
def test_trains_segments_and_ships(tmp_path):
    from keras_transformer import load_model
    from keras_transformer.export import load

    command = [sys.executable, SCRIPT, "--quick", "--out", tmp_path / "out"]
    process = subprocess.run(command, env=dict(os.environ), capture_output=True, text=True, timeout=400)
    assert process.returncode == 0, process.stderr
    assert "mean intersection over union:" in process.stdout
    out = tmp_path / "out"
    assert set(json.loads((out / "history.json").read_text())[1]) == {"loss", "mean_iou"}
    assert (out / "masks.png").stat().st_size > 1000
    model = load_model(out / "model.keras")
    images = np.random.default_rng(0).integers(0, 256, (2, 64, 64, 3)).astype("uint8")
    found = load(out / "bundle", "onnx")({"images": model.processor(images)})
    assert (found["masks"] == np.stack(model.segment(images))).mean() > 0.99


def test_classes_are_those_of_the_pixels(example_module, monkeypatch):
    monkeypatch.syspath_prepend(SCRIPT.parent)  # As for a script: it draws as object_detection does.
    example = example_module("segmentation")
    images, masks = example.draw_shapes(3, seed=0)
    assert images.shape == (3, 64, 64, 3)
    assert masks.shape == (3, 64, 64)
    assert set(np.unique(masks)) <= {0, 1, 2, 3, 255}
    mask = example.Image.new("L", (64, 64))
    example.draw_shape(mask, "square", np.array([10, 20]), 12, 2, example.IGNORED)
    expected = np.zeros((64, 64), "uint8")
    expected[20:32, 10:22] = 255
    expected[21:31, 11:21] = 2
    np.testing.assert_array_equal(np.asarray(mask), expected)
