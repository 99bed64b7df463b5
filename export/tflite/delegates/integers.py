"""Constants that the file computes, and 64-bit integers, neither of which delegates take."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.export.tflite.graph import Graph
from keras_transformer.export.tflite.tree import indices, schema, size_of

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import OperatorT

_MOST = 2**18
_NUMPY: dict[str, Callable[..., np.ndarray]] = {
    "ADD": np.add,
    "SUB": np.subtract,
    "MUL": np.multiply,
    "LESS": np.less,
    "GREATER_EQUAL": np.greater_equal,
    "EQUAL": np.equal,
    "LOGICAL_NOT": np.logical_not,
    "LOGICAL_AND": np.logical_and,
    "SELECT": np.where,
    "SELECT_V2": np.where,
    "NEG": np.negative,
    "MAXIMUM": np.maximum,
    "MINIMUM": np.minimum,
}


def fold_constants(graph: Graph) -> int:
    """Replaces operators of constants by their results; returns how many."""
    count = 0
    kept = []
    for operator in graph.subgraph.operators:
        values = [graph.small_value(index) for index in indices(operator.inputs)]
        known = [each for each in values if each is not None]
        result = _result(graph, operator, known) if values and len(known) == len(values) else None
        if result is None or int(operator.outputs[0]) in graph.ends:
            kept.append(operator)
            continue
        tensor = graph.tensors[int(operator.outputs[0])]
        tensor.buffer = graph.tensors[graph.constant(np.ascontiguousarray(result), "folded")].buffer
        count += 1
    graph.subgraph.operators[:] = kept
    return count


def _result(graph: Graph, operator: OperatorT, values: list[np.ndarray]) -> np.ndarray | None:
    kind, output = graph.kind(operator), int(operator.outputs[0])
    shape = graph.shape(output)
    dtype = {"FLOAT32": "float32", "INT32": "int32", "INT64": "int64", "BOOL": "bool"}.get(graph.type(output))
    if dtype is None or np.prod(shape, dtype="int64") > _MOST or _activates(operator):
        return None
    if kind == "BROADCAST_TO":
        found = np.broadcast_to(values[0], shape)
    elif kind == "RESHAPE":
        found = values[0].reshape(shape)
    elif kind == "CAST":
        found = values[0]
    elif kind in _NUMPY:
        found = _NUMPY[kind](*values)
    else:
        return None
    return found.astype(dtype) if found.shape == shape else None


def _activates(operator: OperatorT) -> bool:
    return bool(getattr(operator.builtinOptions, "fusedActivationFunction", 0))


def without_long_integers(graph: Graph) -> int:
    """Turns 64-bit integers within a graph into 32-bit ones; returns how many tensors.

    Indices and sizes are far below 2**31. Inputs and outputs keep their types; a graph of which one is of 64 bits, or in
    which a constant is larger, is left as it is.
    """
    types = schema().TensorType
    ends = {*indices(graph.subgraph.inputs), *indices(graph.subgraph.outputs)}
    found = [index for index, tensor in enumerate(graph.tensors) if tensor.type == types.INT64]
    if ends.intersection(found):
        return 0
    constants = {index: _long_constant(graph, index) for index in found}
    if any(each is not None and np.abs(each).max(initial=0) >= 2**31 for each in constants.values()):
        return 0
    for index in found:
        tensor, value = graph.tensors[index], constants[index]
        tensor.type = types.INT32
        if value is not None:
            other = graph.add_constant("", "INT32", value.astype("int32"))
            tensor.buffer = graph.tensors[other].buffer
    for operator in graph.subgraph.operators:
        for field in ("inDataType", "outDataType", "outputType", "outType", "idxOutType"):
            if getattr(operator.builtinOptions, field, None) == types.INT64:
                setattr(operator.builtinOptions, field, types.INT32)
    return len(found)


def _long_constant(graph: Graph, index: int) -> np.ndarray | None:
    buffer = graph.model.buffers[graph.tensors[index].buffer]
    return np.frombuffer(np.ascontiguousarray(buffer.data), "int64") if size_of(buffer) else None


def without_equal_casts(graph: Graph, operator: OperatorT) -> bool:
    """Removes a conversion of a tensor to its own type."""
    if graph.kind(operator) != "CAST":
        return False
    source, output = int(operator.inputs[0]), int(operator.outputs[0])
    if graph.type(source) != graph.type(output):
        return False
    graph.emit_reshape(source, graph.shape(output), output)
    return True
