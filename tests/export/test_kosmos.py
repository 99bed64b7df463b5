"""A bundle of text and images generates the texts of the Keras model in every runtime."""

import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from keras_transformer import load_model
from keras_transformer.export import load

pytestmark = pytest.mark.exhaustive

BEGIN = 9
PROMPTS = [[1, BEGIN, 0, 0, 0, 5, BEGIN, 0, 0, 0, 6, 7], [2, 3, 4, BEGIN, 0, 0, 0, 8], [5, BEGIN, 0]]
WORKER = pathlib.Path(__file__).with_name("kosmos_worker.py")


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    out = tmp_path_factory.mktemp("kosmos")
    done = subprocess.run([sys.executable, WORKER, out], capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr[-3000:]
    return out


@pytest.fixture(scope="module")
def images():
    return list(np.random.default_rng(1).normal(size=(3, 2, 8, 8, 3)).astype("float32"))


@pytest.fixture(scope="module")
def keras_model(out):
    return load_model(out / "kosmos.keras")


@pytest.mark.parametrize("backend", ["saved_model", "tflite", "onnx"])
def test_prompts_are_continued_as_keras_does(out, images, keras_model, backend):
    runtime = load(out / "kosmos", backend)
    prompts = {"images": [images[0], images[1][:1], images[2][:1]], "token_ids": PROMPTS}
    expected = keras_model.generate(prompts, max_new_tokens=6)
    assert runtime.generate(prompts, max_new_tokens=6) == expected
    assert len({tuple(text) for text in expected}) == 3
    # A single image has a separate signature in TFLite.
    single = {"images": images[1][:1], "token_ids": PROMPTS[1]}
    assert runtime.generate(single, max_new_tokens=6) == expected[1]
    assert list(runtime.stream(single, max_new_tokens=6)) == expected[1]
    # The image has an effect.
    other = {"images": -images[1][:1], "token_ids": PROMPTS[1]}
    assert runtime.generate(other, max_new_tokens=6) == keras_model.generate(other, max_new_tokens=6)


def test_the_whole_loop_is_a_graph_too(out):
    signatures = json.loads((out / "kosmos" / "manifest.json").read_text())["signatures"]
    assert {"encode", "prefill", "decode", "generate"} <= set(signatures)
    names = {each["name"] for each in signatures["generate"]["inputs"]}
    assert names == {"images", "token_ids", "lengths", "max_new_tokens"}
