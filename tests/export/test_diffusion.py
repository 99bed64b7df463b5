"""A denoiser, and the loop from noise and classes to images as one signature, in three runtimes."""

import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from keras_transformer import load_model
from keras_transformer.export import load

pytestmark = pytest.mark.exhaustive

WORKER = pathlib.Path(__file__).with_name("diffusion_worker.py")
FORMATS = ("saved_model", "tflite", "onnx")
INPUTS = {
    "denoiser": {"images", "times", "labels"},
    "flow": {"noise", "labels"},
    "ddpm": {"noise", "labels", "step_noise"},
    "latents": {"noise", "labels"},
    "encoder": {"images"},
    "texts": {"noise", "text", "pooled_text", "negative_text", "negative_pooled_text"},
}
# Shares of the scale. The first step of DDPM divides the denoiser's rounding, 1e-7, by the share of the image in pure noise,
# which is 0.0064.
BOUNDS = dict.fromkeys(INPUTS, 1e-5) | {"ddpm": 1e-4}


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    out = tmp_path_factory.mktemp("diffusion")
    done = subprocess.run([sys.executable, WORKER, out], capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr[-3000:]
    return out


@pytest.mark.parametrize("name", INPUTS)
def test_three_runtimes_agree_with_keras(out, name):
    artifacts = json.loads((out / "results.json").read_text())[name]["artifacts"]
    assert set(artifacts) == set(FORMATS)
    for artifact in artifacts.values():
        for figures in artifact["parity"]:
            assert figures["ratio"] <= BOUNDS[name]
            assert figures["scale"] > 0.1
    signatures = json.loads((out / name / "manifest.json").read_text())["signatures"]
    assert {each["name"] for each in signatures["serve"]["inputs"]} == INPUTS[name]


@pytest.mark.parametrize("runtime", FORMATS)
def test_guidance_and_classes_act_in_the_file(out, runtime):
    noise = np.random.default_rng(1).normal(size=(3, 8, 8, 3)).astype("float32")
    labels = np.array([4, 0, 5], "int32")  # The last is no class.
    expected = load_model(out / "flow.keras").predict({"noise": noise, "labels": labels}, verbose=0)
    model = load(out / "flow", runtime)
    found = model({"noise": noise, "labels": labels})["images"]
    np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())
    other = model({"noise": noise, "labels": labels[::-1].copy()})["images"]
    assert np.abs(other[0] - found[0]).max() > 1e-2
    np.testing.assert_allclose(other[1], found[1], atol=1e-5 * np.abs(expected).max())
