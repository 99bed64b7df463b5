"""The example that draws images, as a smoke test."""

import json

import numpy as np
import pytest

from keras_transformer import load_model
from keras_transformer.export import load

pytestmark = pytest.mark.exhaustive


def test_quick_run_leaves_a_denoiser_a_grid_and_a_bundle(run_example, tmp_path):
    printed = run_example("image_generation", "--quick", "--out", tmp_path)
    assert "Fréchet distance to the test images" in printed
    assert "40 images drawn" in printed
    history = json.loads((tmp_path / "history.json").read_text())
    assert len(history["loss"]) == len(history["val_loss"]) == 1
    assert set(load_model(tmp_path / "denoiser.keras").input) == {"images", "times", "labels"}
    assert (tmp_path / "samples.png").stat().st_size > 1000
    noise = np.random.default_rng(0).normal(size=(2, 8, 8, 1)).astype("float32")
    pixels = load(tmp_path / "bundle", "tflite")({"noise": noise, "labels": np.array([3, 10], "int32")})
    (pixels,) = pixels.values()
    assert pixels.shape == noise.shape
    assert 0 <= pixels.min() < pixels.max() <= 255
