"""What the test_tflite_*.py files share: the files that the worker left, and how to look into them."""

import numpy as np
from ai_edge_litert.interpreter import Interpreter

from keras_transformer.export.tflite.graph import graphs, read, schema, shape_of, size_of


def run(path, signature, arrays):
    """The outputs of one signature."""
    return Interpreter(str(path), num_threads=1).get_signature_runner(signature)(**arrays)


def reference(directory):
    """`(inputs, what Keras computes)`."""
    with np.load(directory / "reference.npz") as arrays:
        return {name: arrays[name] for name in ("token_ids", "padding_mask")}, arrays["output"]


def share_of_scale(got, expected):
    return float(np.max(np.abs(got - expected)) / np.max(np.abs(expected)))


def constants(path):
    """Dict of buffer to `(name of the type, shape)` of every constant of 2,048 numbers or more."""
    model = read(path.read_bytes())
    types = {number: name for name, number in vars(schema().TensorType).items() if name.isupper()}
    return {
        tensor.buffer: (types[tensor.type], shape_of(tensor))
        for graph in graphs(model)
        for tensor in graph.tensors
        if size_of(model.buffers[tensor.buffer]) and np.prod(shape_of(tensor)) >= 2048
    }


def kinds(path):
    """Names of the operators of the first graph."""
    graph = graphs(read(path.read_bytes()))[0]
    return [graph.kind(operator) for operator in graph.subgraph.operators]
