"""Outliers of activations in TFLite files: what is computed, in which graphs, and the check of the weights."""

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter

from keras_transformer.export.errors import WeightError
from keras_transformer.export.quantization.options import Int8, WeightInt8
from keras_transformer.export.tflite.graph import Graph, graphs
from keras_transformer.export.tflite.quantization.quantize import quantized
from keras_transformer.export.tflite.tree import read, schema, write
from keras_transformer.export.tflite.weights.weight_pairs import weight_pairs
from keras_transformer.export.verification.quantized.weights import compare

ROWS, WIDTH, UNITS = 3, 64, 48
RANDOM = np.random.default_rng(0)
# Codes times 1/32: the quantized weights are exact.
WEIGHT = np.where(np.arange(WIDTH) == 3, 127, RANDOM.integers(-127, 128, (UNITS, WIDTH))).astype("float32") / 32
BIAS = RANDOM.normal(size=UNITS).astype("float32")


def product(signature, rows=ROWS):
    """A file with one signature: a product with a bias and a ReLU."""
    types = schema()
    model, subgraph, entry = types.ModelT(), types.SubGraphT(), types.SignatureDefT()
    model.version, model.buffers, model.operatorCodes = 3, [types.BufferT()], []
    subgraph.tensors, subgraph.operators = [], []
    graph = Graph(model, subgraph)
    x, y = (graph.add_tensor(name, "FLOAT32", (rows, size)) for name, size in (("x", WIDTH), ("y", UNITS)))
    weight, bias = graph.add_constant("weight", "FLOAT32", WEIGHT), graph.add_constant("bias", "FLOAT32", BIAS)
    options = types.FullyConnectedOptionsT()
    options.fusedActivationFunction = types.ActivationFunctionType.RELU
    graph.insert(0, "FULLY_CONNECTED", (x, weight, bias), (y,), options)
    subgraph.inputs, subgraph.outputs = np.array([x], "int32"), np.array([y], "int32")
    entry.signatureKey, entry.subgraphIndex = signature, 0
    entry.inputs, entry.outputs = ([_tensor_map(*each)] for each in (("x", x), ("y", y)))
    model.subgraphs, model.signatureDefs = [subgraph], [entry]
    return write(model)


def _tensor_map(name, index):
    found = schema().TensorMapT()
    found.name, found.tensorIndex = name, index
    return found


def run(content, signature, x):
    return Interpreter(model_content=content).get_signature_runner(signature)(x=x)["y"]


def kinds(content):
    (graph,) = graphs(read(content))
    return [graph.kind(each) for each in graph.subgraph.operators]


@pytest.mark.parametrize("rows", [ROWS, None], ids=["fixed", "dynamic"])
def test_outliers_do_not_make_other_numbers_coarse(rows):
    x = np.random.default_rng(1).normal(size=(ROWS, WIDTH)).astype("float32")
    x[1, 7], x[2, 9], x[2, 30] = 300.0, -200.0, 150.0
    expected = np.maximum(x.astype("float64") @ WEIGHT.T + BIAS, 0)
    error = {}
    for signature in ("serve", "decode"):
        got = run(quantized(product(signature, rows), Int8()), signature, x)
        error[signature] = np.sqrt(np.mean(np.square(got - expected), axis=1))
    assert error["decode"][0] < error["serve"][0] < 0.3
    assert min(error["serve"][1:]) > 4  # One step of these rows is more than 1.
    assert error["decode"][1] < 0.4
    assert error["decode"][2] < 2  # The two outliers share a step.


def test_only_graphs_that_read_tokens_into_a_cache_separate_outliers():
    whole = [
        "ABS",
        "MEAN",
        "MUL",
        "NEG",
        "MINIMUM",
        "MAXIMUM",
        "SUB",
        "CONCATENATION",
        "FULLY_CONNECTED",
        "SPLIT",
        "ADD",
    ]
    assert kinds(quantized(product("decode_1"), Int8())) == whole
    assert kinds(quantized(product("serve"), Int8())) == ["FULLY_CONNECTED"]
    assert "SPLIT" not in kinds(quantized(product("decode_1"), WeightInt8()))


def written(folder, name, content):
    (folder / name).mkdir()
    (folder / name / "model.tflite").write_bytes(content)
    return folder / name


def pairs(tmp_path, content):
    source = written(tmp_path, "float", product("decode"))
    return compare("tflite", weight_pairs(source, written(tmp_path, "int8", content), {"decode": "model.tflite"}))


def changed(change):
    model = read(quantized(product("decode"), Int8()))
    change(*graphs(model))
    return write(model)


def operator(graph, kind):
    return next(each for each in graph.subgraph.operators if graph.kind(each) == kind)


def test_the_weight_and_the_halves_of_the_bias_are_compared(tmp_path):
    found = pairs(tmp_path, quantized(product("decode"), Int8()))
    counts = {"equal": 1, "rounded": 1, "computed": [], "unaccounted": [], "largest_float": 48}
    assert {name: found[name] for name in counts} == counts


def test_another_bias_is_refused(tmp_path):
    def one_number(graph):
        halves = graph.tensors[operator(graph, "FULLY_CONNECTED").inputs[2]]
        values = BIAS / np.float32(2)
        values[5] *= np.float32(1.001)
        graph.model.buffers[halves.buffer].data = values.view("uint8")

    with pytest.raises(WeightError, match=r"'bias' differs from the float weight at \[5\]"):
        pairs(tmp_path, changed(one_number))


def same_half(graph):
    add = operator(graph, "ADD")
    add.inputs = add.inputs[[0, 0]]


def other_rest(graph):
    rest = operator(graph, "SUB")
    rest.inputs = rest.inputs[[1, 0]]


@pytest.mark.parametrize("change", [same_half, other_rest])
def test_parts_that_do_not_make_up_the_activation_are_unaccounted(tmp_path, change):
    assert pairs(tmp_path, changed(change))["unaccounted"] == ["weight", "bias"]
