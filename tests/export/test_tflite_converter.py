"""The direct call of TensorFlow's converter computes what its public API computes, which is the way without it."""

import json
import subprocess
import sys

import numpy as np
import pytest

pytestmark = pytest.mark.slow

SCRIPT = """
import json, sys
from pathlib import Path
import numpy as np
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter
from tensorflow.lite.python import lite
from keras_transformer.export.tflite.convert import convert_saved_model
from keras_transformer.export.tflite.tree import read, write_file

class Module(tf.Module):
    def __init__(self):
        self.kernel = tf.Variable(np.arange(12, dtype="float32").reshape(4, 3) / 7)

    @tf.function(input_signature=[tf.TensorSpec((None, 4), name="x")])
    def product(self, x):
        return {"y": tf.nn.relu(x @ self.kernel) + 0.5}

    @tf.function(input_signature=[tf.TensorSpec((None, 3), name="x")])
    def back(self, x):
        return {"y": x @ tf.transpose(self.kernel)}

module, path = Module(), sys.argv[1]
tf.saved_model.save(module, path, signatures={"product": module.product, "back": module.back})
x = {"product": np.float32([[1, -2, 3, 4]]), "back": np.float32([[1, 2, -3]])}

def outputs(name):
    content = convert_saved_model(path, ["product", "back"])
    # One way packs the file in C++, the other one in Python, which aligns its parts differently.
    write_file(read(content), Path(path, name))
    runners = {name: Interpreter(model_content=content).get_signature_runner(name) for name in x}
    return [runners[name](x=x[name])["y"].tolist() for name in x]

direct = outputs("direct")
kept = lite.TFLiteSavedModelConverterV2
del lite.TFLiteSavedModelConverterV2  # As in another release. The public way needs it as well, when it is called.
public = lite.TFLiteConverterV2.from_saved_model.__func__

def from_saved_model(cls, *arguments, **options):
    lite.TFLiteSavedModelConverterV2 = kept
    return public(cls, *arguments, **options)

lite.TFLiteConverterV2.from_saved_model = classmethod(from_saved_model)
print(json.dumps([direct, outputs("public")]))
"""


@pytest.mark.exhaustive
def test_both_ways_compute_the_same(tmp_path):
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "saved")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    direct, public = json.loads(done.stdout.splitlines()[-1])
    kernel = np.arange(12, dtype="float32").reshape(4, 3) / 7
    expected = [np.maximum([[1, -2, 3, 4]] @ kernel, 0) + 0.5, [[1, 2, -3]] @ kernel.T]
    for found, other, values in zip(direct, public, expected, strict=True):
        np.testing.assert_allclose(found, values, rtol=1e-6)
        assert found == other
    # Packed in the same way, the files are the same to the byte.
    assert (tmp_path / "saved" / "direct").read_bytes() == (tmp_path / "saved" / "public").read_bytes()
