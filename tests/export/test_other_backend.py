"""Models on JAX are exported by a second process on TensorFlow, with the same results and errors."""

import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

SCRIPT = """
import sys
sys.path.insert(0, {here!r})
import keras, numpy as np, small_models
from keras_transformer.export import export, load, ExportError, UnsupportedOpError

keras.config.set_dtype_policy("mixed_bfloat16")
model = small_models.encoder()
lines = []
report = export(model, {out!r} + "/encoder", ["onnx"], progress=lines.append)
assert keras.backend.backend() == "jax"
assert "[1/3] writing onnx" in lines, lines
assert report["onnx"].ratio <= 1e-5
inputs = dict(token_ids=np.arange(12).reshape(2, 6), padding_mask=np.ones((2, 6), bool))
exact = load({out!r} + "/encoder")(inputs)["pooled"]
rough = np.asarray(model(inputs)["pooled"]).astype("float32")
assert 0 < np.abs(exact - rough).max() < 0.1 * np.abs(exact).max()

keras.config.set_dtype_policy("float32")
reports = export(small_models.mlp(), {out!r} + "/several", ["onnx"], quantize=["float32", "weight_int8"], progress=False)
assert list(reports) == ["float32", "weight_int8"]
assert reports["weight_int8"]["onnx"].float_size == reports["float32"]["onnx"].size
try:
    export(small_models.with_eigenvalues(), {out!r} + "/eigenvalues", ["tflite"])
except UnsupportedOpError as error:
    assert (error.format, error.op, error.layer) == ("tflite", "Eig", "my_values"), vars(error)
else:
    raise AssertionError("no error")

class Local(keras.layers.Layer):
    def call(self, x):
        return x

x = keras.Input((2,))
try:
    export(keras.Model(x, Local()(x)), {out!r} + "/local")
except ExportError as error:
    assert "class Local is defined in the running script" in str(error)
print("done")
"""


@pytest.mark.exhaustive
@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="needs jax")
def test_export_from_jax(tmp_path):
    script = SCRIPT.format(here=str(pathlib.Path(__file__).parent), out=str(tmp_path))
    environment = os.environ | {"KERAS_BACKEND": "jax", "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
    assert done.stdout.splitlines()[-1:] == ["done"], done.stderr[-3000:]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["encoder", "several"]
