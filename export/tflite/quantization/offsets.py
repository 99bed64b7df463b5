"""Offsets of 4-bit blocks in TFLite, whose kernels have scales alone: `x @ (q * scale + offset)` as a sum of two products.

The offsets multiply the sums of the activations of each block: a product of 1/32 of the size. Those of tables are looked up
beside the rows, whose digits are added up.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_transformer.export.tflite.graph import Graph
from keras_transformer.export.tflite.tree import add_buffer, schema, signature_of
from keras_transformer.export.tflite.weights.weight import readers

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import ModelT, OperatorT

_PRODUCT = "FULLY_CONNECTED"


class Offsets:
    """Adds the products with offsets to the graphs of a file.

    Args:
        model: `ModelT`, changed in place.
        block_size: int.
    """

    def __init__(self, model: ModelT, block_size: int) -> None:
        self._model, self._block_size = model, block_size
        self._ones: dict[int, int] = {}
        self._constants: dict[Any, int] = {}
        self._sums: dict[Any, int] = {}

    def add(self, tensors: list[tuple[Graph, int]], offset: np.ndarray) -> None:
        """Adds the offsets of one weight to every product that reads it.

        Args:
            tensors: list of `(Graph, index of the tensor of the weight)`.
            offset: array `(N, blocks)` of float16, or of float32, which is stored as it is.
        """
        kind = str(offset.dtype).upper()
        buffer = add_buffer(self._model, offset)
        for graph, index in tensors:
            name = graph.tensors[index].name.decode()
            matrix = self._floats(graph, f"{name}/offsets", offset.shape, buffer, kind)
            products = [each for each, _ in readers(graph, index) if graph.kind(each) == _PRODUCT]
            for operator in products:
                self._add_to(graph, operator, matrix, offset.shape[1])

    def _add_to(self, graph: Graph, operator: OperatorT, matrix: int, blocks: int) -> None:
        source, weight, *bias = map(int, operator.inputs)
        (output,) = map(int, operator.outputs)
        sizes, name = signature_of(graph.tensors[output]), graph.tensors[output].name.decode()
        width = signature_of(graph.tensors[weight])[1]
        assert width is not None
        sums = self._sums_of(graph, operator, source, width, (*sizes[:-1], blocks))
        scaled = graph.add_tensor(f"{name}/scaled", "FLOAT32", sizes)
        shifted = graph.add_tensor(f"{name}/shifted", "FLOAT32", sizes)
        options = schema().AddOptionsT()
        activation = operator.builtinOptions.fusedActivationFunction
        options.fusedActivationFunction = activation
        operator.builtinOptions = copy.copy(operator.builtinOptions)
        operator.builtinOptions.fusedActivationFunction = schema().ActivationFunctionType.NONE
        operator.inputs, operator.outputs = np.array([source, weight, -1], "int32"), np.array([scaled], "int32")
        operators = graph.subgraph.operators
        position = operators.index(operator) + 1
        graph.insert(position, "ADD", (scaled, shifted), (output,), options)
        product = (sums, matrix, bias[0] if bias else -1)
        graph.insert(position, "FULLY_CONNECTED", product, (shifted,), copy.copy(operator.builtinOptions))

    def _sums_of(
        self, graph: Graph, operator: OperatorT, source: int, width: int, sizes: tuple[int | None, ...]
    ) -> int:
        """The sums of the blocks of an activation, for all products that read it."""
        key = (id(graph.subgraph), source, len(sizes))
        if key not in self._sums:
            label = f"sums/{width}/{self._block_size}"
            found = np.arange(-(-width // self._block_size))[:, None] == np.arange(width) // self._block_size
            if width not in self._ones:
                self._ones[width] = add_buffer(self._model, found.astype("float16"))
            ones = self._floats(graph, label, found.shape, self._ones[width])
            self._sums[key] = graph.add_tensor(f"{graph.tensors[source].name.decode()}/{label}", "FLOAT32", sizes)
            options = copy.copy(operator.builtinOptions)
            options.fusedActivationFunction = schema().ActivationFunctionType.NONE
            position = graph.subgraph.operators.index(operator)
            graph.insert(position, "FULLY_CONNECTED", (source, ones, -1), (self._sums[key],), options)
        return self._sums[key]

    def _floats(self, graph: Graph, name: str, shape: tuple[int, ...], buffer: int, kind: str = "FLOAT16") -> int:
        """A constant; the runtime converts one of float16 when it loads."""
        key = (id(graph.subgraph), buffer)
        if key not in self._constants and kind == "FLOAT32":
            self._constants[key] = graph.add_tensor(name, kind, shape, buffer)
        elif key not in self._constants:
            half = graph.add_tensor(name, "FLOAT16", shape, buffer)
            self._constants[key] = graph.add_tensor(f"{name}/float", "FLOAT32", shape)
            graph.insert(0, "DEQUANTIZE", (half,), (self._constants[key],))
        return self._constants[key]


def add_to_rows(graph: Graph, operator: OperatorT, offsets: int, width: int, count: int) -> None:
    """Adds offsets to what an `EMBEDDING_LOOKUP` returns.

    Args:
        graph: `Graph`, changed in place.
        operator: the lookup, of rows `(n, count * width)`.
        offsets: tensor of the offsets `(V, blocks)`.
        width: of the rows that come out.
        count: digits of each number.
    """
    ids, (output,) = int(operator.inputs[0]), map(int, operator.outputs)
    name, rows = graph.tensors[output].name.decode(), signature_of(graph.tensors[ids])[0]
    blocks = int(graph.tensors[offsets].shape[1])
    block = width // blocks

    def tensor(part: str, *sizes: int) -> int:
        return graph.add_tensor(f"{name}/{part}", "FLOAT32", (rows, *sizes))

    def shape(part: str, *sizes: int) -> int:
        return graph.add_constant(f"{name}/{part}/shape", "INT32", np.array([-1, *sizes], "int32"))

    looked_up, parted, summed = (
        tensor("digits", count * width),
        tensor("parted", count, blocks, block),
        tensor("blocks", blocks, block),
    )
    found, spread, moved = tensor("offsets", blocks), tensor("spread", blocks, 1), tensor("moved", blocks, block)
    axis = graph.add_constant(f"{name}/axis", "INT32", np.array([1], "int32"))
    operator.outputs = np.array([looked_up], "int32")
    options = schema().ReshapeOptionsT
    steps = [
        ("RESHAPE", (looked_up, shape("parted", count, blocks, block)), (parted,), options()),
        ("SUM", (parted, axis), (summed,), schema().ReducerOptionsT()),
        ("EMBEDDING_LOOKUP", (ids, offsets), (found,), None),
        ("RESHAPE", (found, shape("spread", blocks, 1)), (spread,), options()),
        ("ADD", (summed, spread), (moved,), schema().AddOptionsT()),
        ("RESHAPE", (moved, shape("rows", width)), (output,), options()),
    ]
    position = graph.subgraph.operators.index(operator) + 1
    for step in reversed(steps):
        graph.insert(position, *step)
