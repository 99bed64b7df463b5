"""Operators whose kernels work on four numbers at a time, in the form that the GPU delegate computes right.

It takes batches of products that are broadcast, but leaves out columns of the result where their number is no multiple of 4.
It takes the largest elements of rows of any length, but reads beyond those whose length is no multiple of 4: its WebGPU
kernel then returns elements that are not there, or divides by zero. It does not take rows of integers (ai-edge-litert 2.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.export.tflite.graph import Graph
from keras_transformer.export.tflite.tree import indices, schema

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import OperatorT

_LANES = 4


def with_equal_batches(graph: Graph, operator: OperatorT) -> bool:
    """One product of all rows where one matrix serves all batches, or as many matrices as batches."""
    if graph.kind(operator) != "BATCH_MATMUL":
        return False
    first, second = indices(operator.inputs)
    output = int(operator.outputs[0])
    shape, options = graph.shape(output), operator.builtinOptions
    batches = [_batch(graph, each, len(shape)) for each in (first, second)]
    if batches[0] == batches[1] or graph.type(output) != "FLOAT32":
        return False
    if int(np.prod(batches[1])) == 1 and not options.adjX:
        rows, inner = int(np.prod(graph.shape(first)[:-1])), graph.shape(first)[-1]
        flat = graph.emit_reshape(first, (1, rows, inner))
        matrix = graph.emit_reshape(second, (1, *graph.shape(second)[-2:]))
        found = graph.emit("BATCH_MATMUL", (flat, matrix), ("FLOAT32", (1, rows, shape[-1])), options, like=output)
        graph.emit_reshape(found, shape, output)
        return True
    wide = [_widened(graph, each, shape[:-2]) for each in (first, second)]
    graph.emit("BATCH_MATMUL", wide, output, options)
    return True


def _batch(graph: Graph, index: int, rank: int) -> tuple[int, ...]:
    batch = graph.shape(index)[:-2]
    return (*(1,) * (rank - 2 - len(batch)), *batch)


def _widened(graph: Graph, index: int, batch: tuple[int, ...]) -> int:
    """A tensor of matrices for each of the batches: a product with ones."""
    matrix = graph.shape(index)[-2:]
    aligned = graph.emit_reshape(index, (*_batch(graph, index, len(batch) + 2), *matrix))
    shape = (*batch, *matrix)
    if graph.shape(aligned) == shape:
        return aligned
    ones = graph.constant(np.ones(shape, "float32"), "ones")
    return graph.emit("MUL", (aligned, ones), ("FLOAT32", shape), schema().MulOptionsT(), like=index)


def with_full_lanes(graph: Graph, operator: OperatorT) -> bool:
    """Rows of floats whose length is a multiple of 4; what is added is smaller than every number."""
    if graph.kind(operator) != "TOPK_V2":
        return False
    source, count = indices(operator.inputs)
    values, places = indices(operator.outputs)
    shape, kind = graph.shape(source), graph.type(source)
    added = -shape[-1] % _LANES
    if kind not in ("FLOAT32", "INT32") or (kind == "FLOAT32" and not added):
        return False
    rows = int(np.prod(shape[:-1]))
    wide = graph.emit_reshape(source if kind == "FLOAT32" else graph.emit_cast(source, "FLOAT32"), (1, rows, shape[-1]))
    if added:
        sides = graph.constant(np.array([[0, 0], [0, 0], [0, added]], "int32"), "sides")
        least = graph.constant(np.array(np.finfo("float32").min), "least")
        result = ("FLOAT32", (1, rows, shape[-1] + added))
        wide = graph.emit("PADV2", (wide, sides, least), result, schema().PadV2OptionsT(), like=values)
    largest = (1, rows, graph.shape(values)[-1])
    found = [
        graph.add_tensor(f"{graph.name(each)}/largest", type, largest)
        for each, type in ((values, "FLOAT32"), (places, "INT32"))
    ]
    graph.emit_operator(graph.operator("TOPK_V2", (wide, count), found, schema().TopKV2OptionsT()))
    if kind == "FLOAT32":
        graph.emit_reshape(found[0], graph.shape(values), values)
    else:
        graph.emit_cast(graph.emit_reshape(found[0], graph.shape(values)), kind, values)
    graph.emit_reshape(found[1], graph.shape(places), places)
    return True
