"""The CIFAR-10 example, in a process of its own, on a handful of images that this file draws."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from keras_transformer import load_model
from keras_transformer.data import load_images
from keras_transformer.export import load

pytestmark = pytest.mark.exhaustive

SCRIPT = Path(__file__).parents[2] / "examples" / "image_classification.py"
SHADES = {"bright": 200, "dark": 50}


def draw_shades(folder, count):
    generator = np.random.default_rng(0)
    for name, shade in SHADES.items():
        (folder / name).mkdir(parents=True)
        for index in range(count):
            noise = generator.integers(-40, 40, (32, 32, 3))
            Image.fromarray((shade + noise).astype("uint8")).save(folder / name / f"{index}.png")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    root = tmp_path_factory.mktemp("example")
    draw_shades(root / "images" / "train", 32)
    draw_shades(root / "images" / "test", 8)
    words = ["--data-dir", "images", "--out", "out", "--epochs", "2", "--batch-size", "16"]
    environment = {**os.environ, "MPLBACKEND": "Agg"}
    process = subprocess.run(
        [sys.executable, SCRIPT, *words], cwd=root, env=environment, capture_output=True, text=True, timeout=300
    )
    assert process.returncode == 0, process.stderr
    return root, process


def test_prints_curve_accuracy_and_cost(finished):
    _, process = finished
    assert process.stdout.count("val_accuracy") == 2
    assert "% of 16 images" in process.stdout
    assert "minutes of CPU time" in process.stdout


def test_leaves_model_history_curve_and_a_bundle_of_raw_pixels(finished):
    root, _ = finished
    out = root / "out"
    history = json.loads((out / "history.json").read_text())
    assert len(history["loss"]) == len(history["val_accuracy"]) == 2
    assert history["cpu_seconds"] > 0
    assert (out / "curve.png").stat().st_size > 1000
    data = load_images(data_dir=root / "images")
    pixels = data.test.images.astype("float32")
    expected = load_model(out / "model.keras").predict(pixels, verbose=0)
    found = load(out / "bundle", "onnx")(pixels)["probabilities"]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    manifest = json.loads((out / "bundle" / "manifest.json").read_text())
    assert manifest["metadata"]["class_names"] == ["bright", "dark"]


@pytest.mark.parametrize("stem, parameters", [("conv", 897_122), ("patch", 809_858)])
def test_networks(finished, stem, parameters):
    root, _ = finished
    spec = importlib.util.spec_from_file_location("image_classification", SCRIPT)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    model = example.build_model(stem, load_images(data_dir=root / "images"))
    assert model.get_layer("final_norm").output.shape == (None, 64, 128)
    assert model.count_params() == parameters
