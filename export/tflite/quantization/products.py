"""What TFLite files compute: how many numbers each product multiplies, and whether they are integers."""

from __future__ import annotations

import math
import pathlib
from collections.abc import Callable, Iterable, Iterator

from keras_transformer.export.data.integer_share import Product
from keras_transformer.export.tflite.graph import Graph, graphs
from keras_transformer.export.tflite.tree import indices, read_file

# The input of the weights, and the number of multiplications from the shapes of inputs and result.
_KINDS: dict[str, tuple[int, Callable[[list[tuple[int, ...]], tuple[int, ...]], int]]] = {
    "FULLY_CONNECTED": (1, lambda inputs, result: math.prod(result) * inputs[1][-1]),
    "BATCH_MATMUL": (1, lambda inputs, result: math.prod(result) * inputs[0][-1]),
    "CONV_2D": (1, lambda inputs, result: math.prod(result) * math.prod(inputs[1][1:])),
    "CONV_3D": (1, lambda inputs, result: math.prod(result) * math.prod(inputs[1][:-1])),
    "DEPTHWISE_CONV_2D": (1, lambda inputs, result: math.prod(result) * math.prod(inputs[1][1:3])),
    "TRANSPOSE_CONV": (1, lambda inputs, result: math.prod(inputs[2][:-1]) * math.prod(inputs[1])),
}
_INTEGERS = frozenset(["INT4", "INT8", "UINT8", "INT16"])
_CONVERSIONS = ("QUANTIZE", "DEQUANTIZE", "CAST")


def products(path: pathlib.Path, locate: Callable[[str, str], str]) -> Iterator[Product]:
    """Yields the products and convolutions of a file, with dynamic sizes as 1, and what else is computed of floats.

    Args:
        path: path of the file.
        locate: maps the type and the name of an operation to the name of its layer.
    """
    for graph in graphs(read_file(path)):
        yield from _products(graph, locate)


def _products(graph: Graph, locate: Callable[[str, str], str]) -> Iterator[Product]:
    for operator in graph.subgraph.operators:
        kind, inputs, results = graph.kind(operator), indices(operator.inputs), indices(operator.outputs)
        layer = locate("", graph.name(results[0]).split(";")[0])
        if kind in _KINDS:
            position, count = _KINDS[kind]
            shapes = [graph.shape(index) if index >= 0 else () for index in inputs]
            yield Product(layer, count(shapes, graph.shape(results[0])), graph.type(inputs[position]) in _INTEGERS)
        elif kind not in _CONVERSIONS and _has_floats(graph, inputs) and _has_floats(graph, results):
            yield Product(layer, 0, False)


def _has_floats(graph: Graph, tensors: Iterable[int]) -> bool:
    return any(index >= 0 and graph.type(index) == "FLOAT32" for index in tensors)
