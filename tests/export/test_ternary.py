"""Exported BitNet models: kernels in 2 bits, without loss."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter
from onnx_graphs import all_nodes
from ternary_worker import WIDTH

from keras_transformer.export.loading.load import load
from keras_transformer.export.onnx.quantization.ternary import _layout

pytestmark = pytest.mark.exhaustive

# Two layers with four projections and three feed-forward kernels.
KERNELS = 2 * 7
NUMBERS = 2 * (4 * WIDTH**2 + 3 * 2 * WIDTH**2)


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    directory = tmp_path_factory.mktemp("ternary")
    worker = pathlib.Path(__file__).with_name("ternary_worker.py")
    environment = os.environ | {"KERAS_BACKEND": "tensorflow"}
    done = subprocess.run([sys.executable, worker, directory], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return directory


def products(path):
    return [
        node for node in all_nodes(onnx.load(path, load_external_data=False).graph) if node.op_type == "MatMulNBits"
    ]


def bits_of_two(path):
    """Returns the sizes in bytes of the 2-bit weights of a TFLite file, each once."""
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(path.read_bytes(), 0))
    tensors = [tensor for graph in model.subgraphs for tensor in graph.tensors if tensor.type == schema.TensorType.INT2]
    return {tensor.buffer: len(model.buffers[tensor.buffer].data) for tensor in tensors}


def test_a_layer_computes_what_keras_computes(out):
    reference = np.load(out / "reference.npz")
    session = onnxruntime.InferenceSession(out / "layer" / "model.onnx")
    (y,) = session.run(None, {"x": reference["x"]})
    np.testing.assert_allclose(y, reference["y"], rtol=1e-6, atol=0)  # Exact zeros of integer sums included.
    runner = Interpreter(str(out / "layer" / "model.tflite")).get_signature_runner("serve")
    np.testing.assert_allclose(runner(x=reference["x"])["y"], reference["y"], rtol=1e-6, atol=0)


def test_the_files_of_a_layer_are_small(out):
    assert len(products(out / "layer" / "model.onnx")) == 1
    assert list(bits_of_two(out / "layer" / "model.tflite").values()) == [WIDTH * 64 / 4]


def test_a_language_model_is_proven_in_every_runtime(out):
    report = json.loads((out / "report.json").read_text())
    assert set(report["artifacts"]) == {"saved_model", "tflite", "onnx"}
    for artifact in report["artifacts"].values():
        assert artifact["parity"]
        # Values rounded to another code differ by one of 127 steps; most do not.
        assert all(figures["ratio"] <= 0.1 for figures in artifact["parity"])


def packed(directory, places):
    """Returns the stored weights of the products of all graphs at some inputs, each content once."""
    found = set()
    for path in directory.glob("*.onnx"):
        names = {node.input[place] for node in products(path) for place in places}
        arrays = {each.name: onnx.numpy_helper.to_array(each) for each in onnx.load(path).graph.initializer}
        found |= {arrays[name].tobytes() for name in names}
    return found


def test_every_kernel_of_a_language_model_has_two_bits(out):
    assert len(packed(out / "language", [1])) == KERNELS
    nodes = [node for path in (out / "language").glob("*.onnx") for node in products(path)]
    assert {next(each.i for each in node.attribute if each.name == "bits") for node in nodes} == {2}
    assert sum(bits_of_two(out / "language" / "model.tflite").values()) == NUMBERS / 4


def test_every_kernel_is_compared_with_the_float_file(out):
    for directory, count in (("layer", 1), ("language", KERNELS)):
        artifacts = json.loads((out / directory / "manifest.json").read_text())["artifacts"]
        assert all(artifacts[name]["weights"]["unaccounted"] == [] for name in ("onnx", "tflite"))
        assert all(artifacts[name]["weights"]["rounded"] >= count for name in ("onnx", "tflite"))


def test_kernels_take_less_than_an_eighth(out):
    assert sum(map(len, packed(out / "language", [1, 2]))) <= 0.12 * 4 * NUMBERS


@pytest.mark.parametrize(
    ("width", "layout"),
    [(384, (128, 4)), (1536, (128, 13)), (128, (128, 2)), (62, (64, 1)), (40, (64, 1)), (31, (32, 1))],
)
def test_blocks_have_a_place_for_the_guard_and_are_of_a_size_that_runs_fast(width, layout):
    assert _layout(width) == layout


@pytest.mark.parametrize("form", ["onnx", "tflite"])
def test_bundles_say_what_keras_says(out, form):
    report = json.loads((out / "report.json").read_text())
    model = load(out / "language", form)
    tokens = [list(model.generate(prompt, max_new_tokens=6)) for prompt in ([3, 1, 4], [5, 9, 2, 6, 5])]
    assert tokens == report["tokens"]
