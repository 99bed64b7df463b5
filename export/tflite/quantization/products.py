"""The products and convolutions of TFLite files: how many numbers each multiplies, and whether they are integers."""

from __future__ import annotations

import math
import pathlib
from collections.abc import Callable, Iterator

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


def products(path: pathlib.Path, locate: Callable[[str, str], str]) -> Iterator[Product]:
    """Yields the products and convolutions of a file, with dynamic sizes as 1.

    Args:
        path: path of the file.
        locate: maps the type and the name of an operation to the name of its layer.
    """
    for graph in graphs(read_file(path)):
        yield from _products(graph, locate)


def _products(graph: Graph, locate: Callable[[str, str], str]) -> Iterator[Product]:
    for operator in graph.subgraph.operators:
        if graph.kind(operator) not in _KINDS:
            continue
        position, count = _KINDS[graph.kind(operator)]
        inputs, (result, *_) = indices(operator.inputs), indices(operator.outputs)
        shapes = [graph.shape(index) if index >= 0 else () for index in inputs]
        layer = locate("", graph.name(result).split(";")[0])
        yield Product(layer, count(shapes, graph.shape(result)), graph.type(inputs[position]) in _INTEGERS)
