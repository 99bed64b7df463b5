"""Row lookups in tables as `EMBEDDING_LOOKUP`, so that a quantized table has a scale for each row.

`GATHER` supports at most one scale for a whole table. `EMBEDDING_LOOKUP` has kernels for 8 and 4 bits with one scale for
each row or block, and returns floats.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.export.tflite.graph import Graph
from keras_transformer.export.tflite.tree import schema, signature_of, size_of

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import OperatorT


def use_lookups(graph: Graph) -> int:
    """Replaces every `GATHER` of rows from a constant float table by `EMBEDDING_LOOKUP`; values do not change.

    Args:
        graph: `Graph`; changed in place.

    Returns:
        int, how many were replaced.
    """
    found = [each for each in graph.subgraph.operators if graph.kind(each) == "GATHER" and _reads_rows(graph, each)]
    for operator in found:
        _replace(graph, operator)
    return len(found)


def _reads_rows(graph: Graph, operator: OperatorT):
    options, (table, ids) = operator.builtinOptions, operator.inputs
    table, ids = graph.tensors[table], graph.tensors[ids]
    types = schema().TensorType
    constant = size_of(graph.model.buffers[table.buffer]) and table.type == types.FLOAT32
    plain = options is None or (options.axis == 0 and options.batchDims == 0)
    return bool(constant and plain and ids.type == types.INT32 and len(signature_of(table)) == 2)


def _replace(graph: Graph, operator: OperatorT):
    (table, ids), (output,) = operator.inputs, operator.outputs
    name = graph.tensors[output].name.decode()
    width = signature_of(graph.tensors[table])[1]
    sizes = signature_of(graph.tensors[ids])
    operators = graph.subgraph.operators
    position = operators.index(operator)
    del operators[position]
    if len(sizes) == 1:
        graph.insert(position, "EMBEDDING_LOOKUP", (ids, table), (output,))
        return
    count = None if None in sizes else math.prod(size or 0 for size in sizes)
    flat = graph.add_tensor(f"{name}/ids", "INT32", (count,))
    rows = graph.add_tensor(f"{name}/rows", "FLOAT32", (count, width))
    everything = graph.add_constant(f"{name}/all", "INT32", np.array([-1], "int32"))
    # Inserted in reverse order, each at the same position.
    shape, shape_operators = _output_shape(graph, ids, sizes, width, name)
    graph.insert(position, "RESHAPE", (rows, shape), (output,), schema().ReshapeOptionsT())
    for arguments in reversed(shape_operators):
        graph.insert(position, *arguments)
    graph.insert(position, "EMBEDDING_LOOKUP", (flat, table), (rows,))
    graph.insert(position, "RESHAPE", (ids, everything), (flat,), schema().ReshapeOptionsT())


def _output_shape(graph: Graph, ids, sizes, width, name: str):
    """The tensor with the shape of the result, and the operators that compute it, in order."""
    if None not in sizes:
        return graph.add_constant(f"{name}/shape", "INT32", np.array((*sizes, width), "int32")), []
    outer = graph.add_tensor(f"{name}/ids_shape", "INT32", (len(sizes),))
    shape = graph.add_tensor(f"{name}/shape", "INT32", (len(sizes) + 1,))
    inner = graph.add_constant(f"{name}/width", "INT32", np.array([width], "int32"))
    options = schema().ShapeOptionsT()
    options.outType = schema().TensorType.INT32
    joined = ("CONCATENATION", (outer, inner), (shape,), schema().ConcatenationOptionsT())
    return shape, [("SHAPE", (ids,), (outer,), options), joined]
