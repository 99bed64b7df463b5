"""Static rules of the delegates of TFLite: the nodes of a graph that one refuses, as far as the file alone tells.

The operators of the GPU delegate were found by handing it graphs of one operator each (ai-edge-litert 2.3).
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from keras_transformer.export.targets.target import Node
from keras_transformer.export.tflite.graph import Graph
from keras_transformer.export.tflite.tree import indices, read_file, signature_of

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import ModelT, OperatorT

_MOST_RANK = 4
_GPU_OPS_TEXT = """
ABS ADD ADD_N ARG_MAX ATAN2 AVERAGE_POOL_2D BATCH_MATMUL CAST CEIL CONCATENATION CONV_2D COS CUMSUM
DEPTH_TO_SPACE DEPTHWISE_CONV_2D DEQUANTIZE DIV ELU EQUAL EXP EXPAND_DIMS FLOOR FLOOR_DIV FLOOR_MOD
FULLY_CONNECTED GATHER GELU GREATER GREATER_EQUAL HARD_SWISH LEAKY_RELU LESS LESS_EQUAL LOG LOGICAL_AND
LOGICAL_NOT LOGICAL_OR LOGISTIC MAX_POOL_2D MAXIMUM MEAN MINIMUM MIRROR_PAD MUL NEG NOT_EQUAL ONE_HOT PACK PAD
PADV2 POW PRELU REDUCE_ALL REDUCE_ANY REDUCE_MAX REDUCE_MIN REDUCE_PROD RELU RELU6 RESHAPE RESIZE_BILINEAR
RESIZE_NEAREST_NEIGHBOR REVERSE_V2 ROUND RSQRT SELECT SELECT_V2 SIGN SIN SLICE SOFTMAX SPACE_TO_DEPTH SPLIT
SPLIT_V SQRT SQUARE SQUARED_DIFFERENCE SQUEEZE STRIDED_SLICE SUB SUM TANH TILE TOPK_V2 TRANSPOSE
TRANSPOSE_CONV UNPACK
"""
GPU_OPS = frozenset(_GPU_OPS_TEXT.split())
_REMEDIES = {
    "WHILE": "use a mechanism without a loop, or layers with unroll=True",
    "SCATTER_ND": "use a mechanism that does not scatter: softmax attention with a dense cache",
    "GATHER_ND": "gather along one axis",
    "DYNAMIC_UPDATE_SLICE": "use keras.ops.scatter_update",
}
_LISTS = ("CONCATENATION", "PACK")  # They may read a tensor twice.
_BOUNDED = {"RESHAPE": 1, "SLICE": 2, "STRIDED_SLICE": 2, "TILE": 1, "TRANSPOSE": 1, "PAD": 1, "PADV2": 1}


def gpu_nodes(path: pathlib.Path, signature: str) -> list[Node]:
    """The nodes of a signature that the GPU delegate refuses."""
    return list(gpu_problems(graph_of(read_file(path), signature)))


def graph_of(model: ModelT, signature: str) -> Graph:
    """The graph of a signature of a `ModelT`."""
    number = next(each.subgraphIndex for each in model.signatureDefs if each.signatureKey.decode() == signature)
    return Graph(model, model.subgraphs[number])


def gpu_problems(graph: Graph) -> Iterator[Node]:
    """The nodes of a graph that the GPU delegate refuses, each with the first reason."""
    for operator in graph.subgraph.operators:
        found = _problem(graph, operator)
        if found is not None:
            name = (graph.tensors[int(operator.outputs[0])].name or b"").decode().split(";")[0]
            yield Node(graph.kind(operator), name, *found)


def _problem(graph: Graph, operator: OperatorT) -> tuple[str, str] | None:
    """`(reason, remedy)` of a node, or None."""
    kind = graph.kind(operator)
    inputs = [each for each in indices(operator.inputs) if each >= 0]
    tensors = [*inputs, *indices(operator.outputs)]
    if any(None in signature_of(graph.tensors[each]) for each in tensors):
        return "dynamic shapes", "give the size of every axis in static"
    if kind not in GPU_OPS:
        return "operation not supported", _REMEDIES.get(kind, "")
    types = {graph.type(each) for each in tensors if not graph.is_constant(each)}
    if "INT64" in types:
        return "type int64", "use int32 for inputs, outputs and indices"
    rank = max(len(graph.shape(each)) for each in tensors)
    if rank > _MOST_RANK + (kind in ("RESHAPE", "TRANSPOSE")):
        return f"tensors of rank {rank}", "use a mechanism that keeps tensors at rank 4"
    position = _BOUNDED.get(kind)
    if position is not None and len(inputs) > position and not graph.is_constant(inputs[position]):
        return "its sizes are computed", "give the size of every axis in static"
    if len(set(inputs)) < len(inputs) and kind not in _LISTS:
        return "reads a tensor twice", "copy it"
    if inputs and all(graph.is_constant(each) for each in inputs):
        return "all its inputs are constant", "compute it before"
    check = _CHECKS.get(kind)
    return check(graph, operator, types) if check else None


Problem = tuple[str, str] | None


def _slice(graph: Graph, operator: OperatorT, types: set[str]) -> Problem:
    options = operator.builtinOptions
    if options.shrinkAxisMask or options.newAxisMask or options.ellipsisMask:
        return "slices that add or remove axes", "slice a range, then reshape"
    strides = graph.small_value(int(operator.inputs[3]))
    if strides is not None and (strides < 0).any():
        return "slices from the end", "use keras.ops.flip"
    return None


def _lookup(graph: Graph, operator: OperatorT, types: set[str]) -> Problem:
    if len(graph.shape(int(operator.inputs[1]))) != 1 or operator.builtinOptions.batchDims:
        return "lookups by other than a list of indices", "use keras.ops.take with a vector of indices"
    return None


def _running_sum(graph: Graph, operator: OperatorT, types: set[str]) -> Problem:
    if "INT32" in types:
        return "cumulative sums of integers", "sum floats"
    axis = graph.small_value(int(operator.inputs[1]))
    if axis is None or int(axis) % len(graph.shape(int(operator.outputs[0]))) == 0:
        return "cumulative sums along the first axis are wrong", "sum along another axis"
    return None


def _largest(graph: Graph, operator: OperatorT, types: set[str]) -> Problem:
    source = int(operator.inputs[0])
    if graph.type(source) != "FLOAT32":
        return "the largest of other than floats", "use floats"
    if graph.shape(source)[-1] % 4:
        return "the largest of rows whose length is no multiple of 4 are wrong", "pad the rows"
    return None


def _padding(graph: Graph, operator: OperatorT, types: set[str]) -> Problem:
    if types - {"FLOAT32"}:
        return f"padding of type {min(types - {'FLOAT32'}).lower()}", "pad floats"
    if len(graph.shape(int(operator.inputs[0]))) < 3:
        return "padding of vectors and matrices", "pad tensors of rank 3 or 4"
    return None


def _one_hot(graph: Graph, operator: OperatorT, types: set[str]) -> Problem:
    return ("one-hot rows of booleans", "compare with a range") if "BOOL" in types else None


def _product(graph: Graph, operator: OperatorT, types: set[str]) -> Problem:
    batches = {graph.shape(each)[:-2] for each in indices(operator.inputs)}
    if len(batches) > 1:
        return "products of batches that are broadcast are wrong", "repeat the smaller one"
    return None


_CHECKS = {
    "STRIDED_SLICE": _slice,
    "GATHER": _lookup,
    "CUMSUM": _running_sum,
    "TOPK_V2": _largest,
    "PAD": _padding,
    "PADV2": _padding,
    "ONE_HOT": _one_hot,
    "BATCH_MATMUL": _product,
}
