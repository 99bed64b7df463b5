"""Helpers of the test_tflite_*.py files: the files of the worker and their content."""

import numpy as np
from ai_edge_litert.interpreter import Interpreter

from keras_transformer.export.tflite.graph import graphs
from keras_transformer.export.tflite.tree import read, schema, shape_of, size_of


def run(path, signature, arrays):
    """Returns the outputs of one signature."""
    return Interpreter(str(path), num_threads=1).get_signature_runner(signature)(**arrays)


def reference(directory):
    """Returns `(inputs, outputs of Keras)`."""
    with np.load(directory / "reference.npz") as arrays:
        return {name: arrays[name] for name in ("token_ids", "padding_mask")}, arrays["output"]


def share_of_scale(got, expected):
    return float(np.max(np.abs(got - expected)) / np.max(np.abs(expected)))


def constants(path):
    """Returns a dict of buffer to `(type name, shape)` of every constant of at least 2,048 elements."""
    model = read(path.read_bytes())
    types = {number: name for name, number in vars(schema().TensorType).items() if name.isupper()}
    return {
        tensor.buffer: (types[tensor.type], shape_of(tensor))
        for graph in graphs(model)
        for tensor in graph.tensors
        if size_of(model.buffers[tensor.buffer]) and np.prod(shape_of(tensor)) >= 2048
    }


def kinds(path):
    """Returns the names of the operators of the first graph."""
    graph = graphs(read(path.read_bytes()))[0]
    return [graph.kind(operator) for operator in graph.subgraph.operators]


def float_operators(content):
    """Returns the names of the operators that read floats, but for those at the ends and between integers and floats."""
    (graph,) = graphs(read(content))
    readers = [each for each in graph.subgraph.operators if graph.kind(each) not in ("QUANTIZE", "DEQUANTIZE", "CAST")]
    return [graph.kind(each) for each in readers if "FLOAT32" in [graph.type(int(i)) for i in each.inputs if i >= 0]]
