"""Scatters and counts of indices, as a router of experts has them, in operators that the GPU delegate takes.

Numbers pass through float32, which has all integers up to 2**24: the counts and indices of a graph are far below.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.export.tflite.graph import Graph
from keras_transformer.export.tflite.tree import indices, schema

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import OperatorT

_MOST = 2**24  # Elements of a matrix that chooses rows.
_NUMBERS = ("FLOAT32", "INT32")


def without_scatters(graph: Graph, operator: OperatorT) -> bool:
    """A scatter of rows as a product with a matrix of zeros and ones; rows of equal places are summed, as in a scatter."""
    if graph.kind(operator) != "SCATTER_ND":
        return False
    places, rows, _ = indices(operator.inputs)
    output = int(operator.outputs[0])
    shape, kind = graph.shape(output), graph.type(output)
    depth = graph.shape(places)[-1]
    count, size = int(np.prod(graph.shape(places)[:-1])), int(np.prod(shape[:depth]))
    if kind not in _NUMBERS or graph.type(places) != "INT32" or count * size > _MOST:
        return False
    known_places, known_rows = graph.small_value(places), graph.small_value(rows)
    if known_places is not None and known_rows is not None:
        total = np.zeros(shape, kind.lower())
        np.add.at(total, tuple(np.moveaxis(known_places, -1, 0)), known_rows)
        graph.emit_reshape(graph.constant(total, "scattered"), shape, output)
        return True
    place = _linear(graph, places, (count, depth), shape[:depth], output)
    slots = graph.constant(np.arange(size, dtype="int32").reshape(1, size, 1), "slots")
    chosen = _equal(graph, graph.emit_reshape(place, (1, 1, count)), slots, (1, size, count), output)
    values = graph.emit_reshape(_as_float(graph, rows), (1, count, int(np.prod(shape[depth:]))))
    options = schema().BatchMatMulOptionsT()
    wide = ("FLOAT32", (1, size, graph.shape(values)[-1]))
    found = graph.emit("BATCH_MATMUL", (graph.emit_cast(chosen, "FLOAT32"), values), wide, options, like=output)
    if kind == "FLOAT32":
        graph.emit_reshape(found, shape, output)
    else:
        graph.emit_cast(graph.emit_reshape(found, shape), kind, output)
    return True


def with_inner_sums(graph: Graph, operator: OperatorT) -> bool:
    """A running sum of integers as one of floats, and one along the first axis as one along an inner axis.

    The delegate takes sums of floats along the first axis, but returns other numbers (ai-edge-litert 2.3).
    """
    if graph.kind(operator) != "CUMSUM":
        return False
    source, axis = int(operator.inputs[0]), graph.small_value(int(operator.inputs[1]))
    output = int(operator.outputs[0])
    shape, kind = graph.shape(output), graph.type(output)
    if axis is None or kind not in _NUMBERS or (kind == "FLOAT32" and int(axis) % len(shape)):
        return False
    place = int(axis) % len(shape)
    wide = (1, int(np.prod(shape[:place])), shape[place], int(np.prod(shape[place + 1 :])))
    inner = graph.constant(np.array(2, "int32"), "axis")
    inputs = (graph.emit_reshape(_as_float(graph, source), wide), inner)
    total = graph.emit("CUMSUM", inputs, ("FLOAT32", wide), operator.builtinOptions, like=output)
    if kind == "FLOAT32":
        graph.emit_reshape(total, shape, output)
    else:
        graph.emit_cast(graph.emit_reshape(total, shape), kind, output)
    return True


def without_boolean_choices(graph: Graph, operator: OperatorT) -> bool:
    """Rows with one true value, as a comparison with the numbers of the columns."""
    output = int(operator.outputs[0])
    if graph.kind(operator) != "ONE_HOT" or graph.type(output) != "BOOL":
        return False
    source, _, on, off = indices(operator.inputs)
    chosen, others, shape = graph.small_value(on), graph.small_value(off), graph.shape(output)
    axis = operator.builtinOptions.axis % len(shape)
    if chosen is None or others is None or not chosen.all() or others.any():
        return False
    order = np.arange(shape[axis], dtype="int32").reshape([-1 if each == axis else 1 for each in range(len(shape))])
    number = graph.emit_reshape(source, (*shape[:axis], 1, *shape[axis + 1 :]))
    _equal(graph, number, graph.constant(order, "order"), output, output)
    return True


def _linear(graph: Graph, places: int, shape: tuple[int, int], sizes: tuple[int, ...], like: int) -> int:
    """The numbers `(N, 1)` in a flattened tensor of these sizes of places, which are of shape `(N, depth)`."""
    count, depth = shape
    strides = np.array([np.prod(sizes[axis + 1 :]) for axis in range(depth)], "int32").reshape(1, depth)
    known = graph.small_value(places)
    if known is not None:
        return graph.constant((known.reshape(count, depth) * strides).sum(1, keepdims=True, dtype="int32"), "places")
    rows = graph.emit_reshape(places, shape)
    if depth == 1:
        return rows
    steps = graph.constant(strides, "strides")
    scaled = graph.emit("MUL", (rows, steps), ("INT32", (count, depth)), schema().MulOptionsT(), like=like)
    options = schema().ReducerOptionsT()
    options.keepDims = True
    last = graph.constant(np.array([1], "int32"), "axis")
    return graph.emit("SUM", (scaled, last), ("INT32", (count, 1)), options, like=like)


def _equal(graph: Graph, first: int, second: int, output: int | tuple[int, ...], like: int) -> int:
    result = ("BOOL", output) if isinstance(output, tuple) else output
    return graph.emit("EQUAL", (first, second), result, schema().EqualOptionsT(), like=like)


def _as_float(graph: Graph, index: int) -> int:
    if graph.type(index) == "FLOAT32":
        return index
    value = graph.small_value(index)
    return graph.emit_cast(index, "FLOAT32") if value is None else graph.constant(value.astype("float32"), "numbers")
