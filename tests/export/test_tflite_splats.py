"""Splats in place of weights: the file contains the weights themselves, once, in the layout of their operators."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

SCRIPT = """
import collections, json, pathlib, sys
import keras
import numpy as np
from keras_transformer.export import export
from keras_transformer.export.tflite import convert
from keras_transformer.export.tflite.graph import graphs, read, size_of
from keras_transformer.export.tflite.restore import UnrestorableError
from keras_transformer.models import Decoder, Llama, Size
from keras_transformer.tasks import LanguageModel

folder, restored = pathlib.Path(sys.argv[1]), []
original = convert.restore

def restore(model, splats, *arguments):
    original(model, splats, *arguments)
    restored.extend(splat.variable.path for splat in splats)

def contents(name):
    model = read((folder / name / "model.tflite").read_bytes())
    return collections.Counter(bytes(each.data) for each in model.buffers if size_of(each))

def layouts(variable):
    # A variable as it is, and as a matrix with its outputs as rows, for all numbers of input axes; times 1/sqrt(16), too.
    for array in (np.asarray(variable), np.asarray(variable) * np.float32(0.25)):
        yield array.tobytes()
        for split in range(1, array.ndim):
            yield np.ascontiguousarray(array.reshape(int(np.prod(array.shape[:split])), -1).T).tobytes()

def trained(model):
    random = np.random.default_rng(0)
    for weight in model.weights:  # Gains that are not 1 would be multiplied into kernels.
        weight.assign_add(random.normal(0.0, 0.1, weight.shape))
    return model

models = {
    "tied": LanguageModel(Llama(Size(1, 64, 4, 64), 300, num_key_value_heads=2), tie_embeddings=True),
    "untied": LanguageModel(Decoder(Size(1, 64, 4, 128), 300, max_sequence_length=32)),
}
found = {}
for name, model in models.items():
    restored.clear()
    convert.restore = restore
    export(trained(model), folder / name, ["tflite"])
    buffers = contents(name)
    large = [each for each in model.variables if len(each.shape) > 1 and np.prod(each.shape) >= 4096]
    missing = [each.path for each in large if not any(buffers[layout] for layout in layouts(each))]
    found[name] = {"restored": len(restored), "large": len(large), "missing": missing}
    found[name]["twice"] = sum(count > 1 for content, count in buffers.items() if len(content) > 4096)

    def refuse(*arguments):
        raise UnrestorableError("for the test")

    convert.restore = refuse
    export(model, folder / f"{name}_whole", ["tflite"])
    found[name]["as_whole"] = set(buffers) == set(contents(f"{name}_whole"))
    found[name]["sizes"] = [sum(map(len, buffers)), sum(map(len, contents(f"{name}_whole")))]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    command = [sys.executable, "-c", SCRIPT, str(tmp_path_factory.mktemp("splats"))]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1])


@pytest.mark.parametrize("name", ["tied", "untied"])
def test_the_weights_are_in_the_file(found, name):
    assert found[name]["restored"] >= found[name]["large"] - 1 >= 5
    assert found[name]["missing"] == []
    assert found[name]["twice"] == 0


@pytest.mark.parametrize("name", ["tied", "untied"])
def test_the_file_is_that_of_a_conversion_with_weights(found, name):
    whole, other = found[name]["sizes"]
    assert found[name]["as_whole"], (whole, other)
