"""The example of drawn shapes, in a process of its own, with a few small steps."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "object_detection.py"


@pytest.mark.exhaustive
def test_trains_finds_and_ships(tmp_path):
    from keras_transformer import load_model
    from keras_transformer.export import load

    command = [sys.executable, SCRIPT, "--quick", "--out", tmp_path / "out"]
    process = subprocess.run(command, env=dict(os.environ), capture_output=True, text=True, timeout=400)
    assert process.returncode == 0, process.stderr
    assert "'ap_50':" in process.stdout
    out = tmp_path / "out"
    assert len(json.loads((out / "history.json").read_text())) == 2
    assert (out / "detections.png").stat().st_size > 1000
    model = load_model(out / "model.keras")
    images = np.random.default_rng(0).integers(0, 256, (2, 64, 64, 3)).astype("uint8")
    found = load(out / "bundle", "onnx")({"images": model.processor(images)})
    expected = model.detect(images, threshold=0.0)
    np.testing.assert_allclose(np.sort(found["scores"])[:, ::-1], [each.scores for each in expected], atol=1e-5)


def test_boxes_are_around_the_shapes():
    spec = importlib.util.spec_from_file_location("object_detection", SCRIPT)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    picture = example.Image.new("RGB", (example.SIDE, example.SIDE))
    for name, corner, side in (("circle", (3, 5), 14), ("square", (30, 40), 20), ("triangle", (40, 2), 17)):
        empty = picture.copy()
        example.draw_shape(empty, name, np.array(corner), side, (200, 150, 100))
        drawn = np.argwhere(np.asarray(empty).any(-1))
        np.testing.assert_array_equal(drawn.min(0), corner[::-1])
        np.testing.assert_array_equal(drawn.max(0), np.array(corner[::-1]) + side - 1)
    images, boxes, labels = example.draw_shapes(3, seed=0)
    assert images.shape == (3, 64, 64, 3)
    assert all(len(each) == len(classes) for each, classes in zip(boxes, labels, strict=True))
