"""Operators that TensorFlow Lite for Microcontrollers does not have, in those that it has."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.export.tflite.graph import Graph, graphs
from keras_transformer.export.tflite.tree import schema

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import ModelT, OperatorT

_CODES = np.arange(-128, 128)


def rewrite(model: ModelT) -> None:
    """Writes choices and the existence of a true element in operators that compute the same.

    Args:
        model: `ModelT`, changed in place.
    """
    for graph in graphs(model):
        for rule in (_with_sums_of_choices, _with_newer_choice, _without_any):
            graph.replace_operators(rule)


def rewrite_integers(model: ModelT) -> None:
    """Writes GELUs of 8 bits as lookups: of each of the 256 numbers that there are.

    Args:
        model: `ModelT` of a quantized file, changed in place.
    """
    for graph in graphs(model):
        graph.replace_operators(_with_lookup)


def _with_newer_choice(graph: Graph, operator: OperatorT) -> bool:
    """`SELECT` of equal shapes is `SELECT_V2`."""
    shapes = {graph.shape(int(each)) for each in operator.inputs}
    if graph.kind(operator) != "SELECT" or len(shapes) > 1:
        return False
    graph.emit("SELECT_V2", list(map(int, operator.inputs)), int(operator.outputs[0]), schema().SelectV2OptionsT())
    return True


def _with_sums_of_choices(graph: Graph, operator: OperatorT) -> bool:
    """A choice between integers is the sum of both, each times 0 or 1."""
    output = int(operator.outputs[0])
    if graph.kind(operator) not in ("SELECT", "SELECT_V2") or graph.type(output) != "INT32":
        return False
    condition, *choices = map(int, operator.inputs)
    options, shape = schema().MulOptionsT(), graph.shape(condition)
    opposite = graph.emit("LOGICAL_NOT", (condition,), ("BOOL", shape), schema().LogicalNotOptionsT(), like=output)
    parts = []
    for flag, choice in zip((condition, opposite), choices, strict=True):
        result = ("INT32", np.broadcast_shapes(shape, graph.shape(choice)))
        parts.append(graph.emit("MUL", (graph.emit_cast(flag, "INT32"), choice), result, options, like=output))
    graph.emit("ADD", parts, output, schema().AddOptionsT())
    return True


def _without_any(graph: Graph, operator: OperatorT) -> bool:
    """One is true where not all are false."""
    if graph.kind(operator) != "REDUCE_ANY":
        return False
    source, axes = map(int, operator.inputs)
    output = int(operator.outputs[0])
    options = schema().LogicalNotOptionsT()
    opposite = graph.emit("LOGICAL_NOT", (source,), ("BOOL", graph.shape(source)), options, like=output)
    result = ("BOOL", graph.shape(output))
    none = graph.emit("REDUCE_ALL", (opposite, axes), result, operator.builtinOptions, like=output)
    graph.emit("LOGICAL_NOT", (none,), output, options)
    return True


def _with_lookup(graph: Graph, operator: OperatorT) -> bool:
    source, output = int(operator.inputs[0]), int(operator.outputs[0])
    if graph.kind(operator) != "GELU" or graph.type(source) != "INT8":
        return False
    shape = graph.shape(source)
    code = graph.emit_cast(source, "INT32")
    first = graph.constant(np.array([-int(_CODES[0])], "int32"), "first")
    place = graph.emit("ADD", (code, first), ("INT32", shape), schema().AddOptionsT(), like=output)
    table = _table(graph, source, output, bool(operator.builtinOptions.approximate))
    graph.emit("GATHER", (table, place), output, schema().GatherOptionsT())
    return True


def _table(graph: Graph, source: int, output: int, is_approximate: bool) -> int:
    """The index of a constant: the codes of the GELU of all codes of a tensor."""
    before, after = (graph.tensors[each].quantization for each in (source, output))
    function = _approximate_gelu if is_approximate else _gelu
    numbers = (_CODES - int(before.zeroPoint[0])) * float(before.scale[0])
    results = np.array([function(each) for each in numbers]) / float(after.scale[0]) + int(after.zeroPoint[0])
    codes = np.clip(np.round(results), _CODES[0], _CODES[-1]).astype("int8")
    return graph.add_constant(f"{graph.name(output)}/table", "INT8", codes, after)


def _gelu(x: float) -> float:
    return 0.5 * x * (1 + math.erf(x / math.sqrt(2)))


def _approximate_gelu(x: float) -> float:
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
