"""Weights as inputs of the converter: the file is that of a conversion with constants, and has each weight once."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.exhaustive

SCRIPT = """
import collections, json, pathlib, sys
import keras
import numpy as np
import tensorflow as tf
from keras_transformer.export import export, export_spec
from keras_transformer.export.data.array_spec import ArraySpec
from keras_transformer.export.data.export_spec import ExportSpec, Probe, Signature
from keras_transformer.export.tflite import input_weights
from keras_transformer.export.tflite.graph import graphs
from keras_transformer.export.tflite.tree import read, size_of
from keras_transformer.models import Decoder, DINOv2, Llama, RedNet, RWKV, Size
from keras_transformer.tasks import LanguageModel

folder = pathlib.Path(sys.argv[1])

def parsed(name):
    return read((folder / name / "model.tflite").read_bytes())

def contents(name):
    return collections.Counter(bytes(each.data) for each in parsed(name).buffers if size_of(each))

def operators(name):
    return [sorted(graph.kind(each) for each in graph.subgraph.operators) for graph in graphs(parsed(name))]

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
    "loop": RWKV(Size(1, 64, 2, 128), 300),
    "scales": DINOv2(Size(1, 64, 2, 128), patch_size=8, image_size=16, gated=True, mask_token=False, layer_scale=0.3),
    # The converter loses a ReLU that it takes into a product with an input; a bias of 0 is dropped before that.
    "activations": keras.Sequential([
        keras.Input((None, 64), name="weight_x"),
        keras.layers.Dense(128, use_bias=False, activation="relu"),
        keras.layers.Dense(64, activation="relu6"),
        keras.layers.Dense(64, activation="relu"),
    ]),
    "norms": RedNet((1,), image_size=16, hidden_dim=64, kernel_size=3, group_channels=16),
}
found, small = {}, input_weights._SMALL
for name, model in models.items():
    input_weights._SMALL = small
    export(model if name == "activations" else trained(model), folder / name, ["tflite"])
    buffers = contents(name)
    large = [each for each in model.variables if len(each.shape) > 1 and np.prod(each.shape) >= small]
    missing = [each.path for each in large if not any(buffers[layout] for layout in layouts(each))]
    found[name] = {"large": len(large), "missing": missing}
    found[name]["twice"] = sum(count > 1 for content, count in buffers.items() if len(content) > small)
    input_weights._SMALL = 1e9
    export(model, folder / f"{name}_whole", ["tflite"])
    found[name]["contents"] = set(buffers) == set(contents(f"{name}_whole"))
    found[name]["operators"] = [operators(name), operators(f"{name}_whole")]

kernel = tf.Variable(np.random.default_rng(0).normal(size=(8, 6)).astype("float32"))  # It is not the model's.
product = lambda tensors: {"y": tf.nn.relu(tf.matmul(tensors["x"], kernel)) + 1.0}
probe = Probe({"x": np.random.default_rng(1).normal(size=(4, 8)).astype("float32")}, "batch=4")
probe.outputs = {"y": product(probe.inputs)["y"].numpy()}
signature = Signature(product, (ArraySpec("x", "float32", (None, 8), ("batch", None)),), [probe])
export_spec(ExportSpec({"serve": signature}), folder / "captured", ["tflite"])
found["captured"] = operators("captured")
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    command = [sys.executable, "-c", SCRIPT, str(tmp_path_factory.mktemp("weights"))]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1])


@pytest.mark.parametrize("name", ["tied", "untied"])
def test_the_weights_are_in_the_file(found, name):
    assert found[name]["large"] >= 5
    assert found[name]["missing"] == []
    assert found[name]["twice"] == 0


@pytest.mark.parametrize("name", ["tied", "untied", "loop", "scales", "norms"])
def test_the_content_is_that_of_a_conversion_with_weights(found, name):
    assert found[name]["contents"]


@pytest.mark.parametrize("name", ["tied", "untied", "loop", "scales", "norms", "activations"])
def test_the_operators_are_those_of_a_conversion_with_weights(found, name):
    new, old = found[name]["operators"]
    assert new == old


def test_products_with_captured_variables_have_their_activations(found):
    assert found["captured"] == [["ADD", "FULLY_CONNECTED"]]
