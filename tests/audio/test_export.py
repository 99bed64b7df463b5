"""LogMel and a step of speech in the three runtimes, on recordings."""

import pathlib
import subprocess
import sys

import numpy as np
import pytest

from keras_transformer.export import load

pytestmark = pytest.mark.slow

HERE = pathlib.Path(__file__).parent
DATA = np.load(HERE.parent / "data" / "processors" / "audio.npz")
FORMATS = ("saved_model", "tflite", "onnx")


@pytest.fixture(scope="module")
def bundles(tmp_path_factory):
    out = tmp_path_factory.mktemp("audio")
    result = subprocess.run([sys.executable, HERE / "export_worker.py", out], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-3000:]
    return out


def recording(name):
    return DATA[name].astype("float32")[None] / 32768


@pytest.mark.parametrize("format", FORMATS)
def test_equals_transformers(bundles, format):
    filled = load(bundles / "filled", format)
    for name in ("mixed", "loud", "clicks"):
        (found,) = filled(samples=recording(name)).values()
        np.testing.assert_allclose(found[0], DATA[f"whisper/{name}"], atol=1e-4)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("name", ["fixed", "dynamic", "normalized", "unpadded"])
def test_equals_the_layer(bundles, name, format):
    model, expected = load(bundles / name, format), np.load(bundles / f"{name}.npz")
    for each in expected.files:
        samples = recording(each)
        if name == "fixed" and samples.shape[1] != 8000:
            continue
        (found,) = model(samples=np.concatenate([samples, 0.5 * samples])).values()
        assert found.shape[0] == 2
        np.testing.assert_allclose(found[0], expected[each], atol=1e-4 if name != "unpadded" else 1e-3)


@pytest.mark.parametrize("format", FORMATS)
def test_too_few_samples_are_filled(bundles, format):
    model = load(bundles / "dynamic", format)
    samples = recording("loud")[:, :50]
    filled = np.pad(samples, ((0, 0), (0, 51)))
    for one, two in zip(model(samples=samples).values(), model(samples=filled).values(), strict=True):
        assert one.shape == (1, 1, 40)
        np.testing.assert_allclose(one, two, atol=1e-5)


@pytest.mark.parametrize("format", FORMATS)
def test_steps_of_speech_are_the_whole(bundles, format):
    step, arrays = load(bundles / "step", format), np.load(bundles / "step.npz")
    state = {name.removeprefix("state/"): arrays[name] for name in arrays.files if name.startswith("state/")}
    inputs, size, logits = {name: arrays[name] for name in ("samples", "padding_mask")}, int(arrays["size"]), []
    shapes = {name: each.shape for name, each in state.items()}
    for start in range(inputs["samples"].shape[1] - 8 * size, inputs["samples"].shape[1], size):
        state = dict(step({**{name: each[:, start : start + size] for name, each in inputs.items()}, **state}))
        logits.append(state.pop("logits"))
        assert {name: each.shape for name, each in state.items()} == shapes
    np.testing.assert_allclose(np.concatenate(logits, axis=1), arrays["logits"], atol=1e-5)
