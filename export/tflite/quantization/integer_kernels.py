"""What TFLite files are written with, so that kernels of integers compute them, and XNNPACK those of CPUs.

XNNPACK runs TFLite files on CPUs. What it has no kernel of integers for runs between the parts that it takes, on a CPU
without NEON in plain loops: the hard swishes of a MobileNetV3 take most of its time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.export.tflite.graph import Graph, graphs
from keras_transformer.export.tflite.tree import indices, read, schema, signature_of, write

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import ModelT, OperatorT

# Operators with a kernel of 8 bits that TensorFlow's quantizer does not know.
_UNKNOWN = ("ELU",)
# Operators whose result has the scale of both operands.
BOUNDS = ("MINIMUM", "MAXIMUM")


def split_operators(content: bytes, bits: int = 8) -> bytes:
    """A float file of operators that XNNPACK has kernels of integers for.

    A hard swish is `x · min(max(x + 3, 0), 6) / 6`, and with activations of 8 bits a squared difference, as of a norm, is
    the square of a difference.

    Args:
        content: bytes of a float .tflite file.
        bits: of the activations.

    Returns:
        The same bytes, if there are no such operators.
    """
    model, count = read(content), 0
    for graph in graphs(model):
        count += graph.replace_operators(_split_hard_swish)
        if bits == 8:
            count += graph.replace_operators(_split_squared_difference)
            _share_differences(graph)
    return write(model) if count else content


def _split_hard_swish(graph: Graph, operator: OperatorT) -> bool:
    if graph.kind(operator) != "HARD_SWISH":
        return False
    (x,), (result,) = indices(operator.inputs), indices(operator.outputs)
    add, multiply = schema().AddOptionsT(), schema().MulOptionsT()
    add.fusedActivationFunction = schema().ActivationFunctionType.RELU6
    numbers = [graph.constant(np.array(each, "float32"), "hard_swish") for each in (3.0, 1 / 6)]
    gates = [_like(graph, result, f"gate_{each}") for each in ("sum", "product")]
    graph.emit("ADD", (x, numbers[0]), gates[0], add)
    graph.emit("MUL", (gates[0], numbers[1]), gates[1], multiply)
    graph.emit("MUL", (x, gates[1]), result, multiply)
    return True


def _split_squared_difference(graph: Graph, operator: OperatorT) -> bool:
    if graph.kind(operator) != "SQUARED_DIFFERENCE" or graph.type(int(operator.outputs[0])) != "FLOAT32":
        return False
    (result,) = indices(operator.outputs)
    difference = _like(graph, result, "difference")
    graph.emit("SUB", tuple(indices(operator.inputs)), difference, schema().SubOptionsT())
    graph.emit("MUL", (difference, difference), result, schema().MulOptionsT())
    return True


def _like(graph: Graph, index: int, label: str) -> int:
    """A new tensor of the name, with a label, and of the shape of another."""
    return graph.add_tensor(f"{graph.name(index)}/{label}", "FLOAT32", signature_of(graph.tensors[index]))


def _share_differences(graph: Graph) -> None:
    """Computes equal differences once: a norm divides the one whose square it has."""
    known, other, kept = dict[tuple[int, ...], int](), dict[int, int](), []
    graph.find_uses()
    for operator in graph.subgraph.operators:
        operator.inputs = np.array([other.get(index, index) for index in indices(operator.inputs)], "int32")
        result, key = int(operator.outputs[0]) if len(operator.outputs) else -1, tuple(indices(operator.inputs))
        is_difference = graph.kind(operator) == "SUB" and not operator.builtinOptions.fusedActivationFunction
        if is_difference and key in known and result not in graph.ends:
            other[result] = known[key]
            continue
        if is_difference:
            known.setdefault(key, result)
        kept.append(operator)
    graph.subgraph.operators[:] = kept


def drop_idle_bounds(model: ModelT, ranges: Mapping[tuple[int, int], tuple[float, float]]) -> None:
    """Removes minima and maxima with numbers beyond the range of the other operand, which integers are cut off at.

    The quantizer would give such a number the scale of the range, in which it is another one.

    Args:
        model: `ModelT` of the float file, changed in place.
        ranges: the ranges by the indices of graphs and tensors, which stay.
    """
    for number, graph in enumerate(graphs(model)):
        graph.find_uses()
        kept, other = [], dict[int, int]()
        for operator in graph.subgraph.operators:
            operator.inputs = np.array([other.get(index, index) for index in indices(operator.inputs)], "int32")
            source = _within_bound(graph, operator, number, ranges)
            if source is None:
                kept.append(operator)
            else:
                other[int(operator.outputs[0])] = source
        graph.subgraph.operators[:] = kept


def _within_bound(
    graph: Graph, operator: OperatorT, number: int, ranges: Mapping[tuple[int, int], tuple[float, float]]
) -> int | None:
    """The operand that a minimum or a maximum with a number leaves as it is, or None."""
    result = int(operator.outputs[0])
    if graph.kind(operator) not in BOUNDS or result in graph.ends:
        return None
    inputs = indices(operator.inputs)
    bounds = [value for value in map(graph.small_value, inputs) if value is not None and value.size == 1]
    sources = [index for index in inputs if (number, index) in ranges]
    if len(bounds) != 1 or len(sources) != 1:
        return None
    (least, largest), bound = ranges[number, sources[0]], float(bounds[0].reshape(()))
    is_idle = bound > largest if graph.kind(operator) == "MINIMUM" else bound < least
    return sources[0] if is_idle else None


def compute_in_integers(model: ModelT) -> None:
    """Lets operators between integers compute integers, which the quantizer has left float though they have a kernel.

    Args:
        model: `ModelT` of a quantized file, changed in place.
    """
    for graph in graphs(model):
        graph.find_uses()
        dropped = []
        for operator in graph.subgraph.operators:
            if graph.kind(operator) not in _UNKNOWN:
                continue
            before, after = graph.makers.get(int(operator.inputs[0])), graph.only_reader(int(operator.outputs[0]))
            if before is None or after is None or [*map(graph.kind, (before, after))] != ["DEQUANTIZE", "QUANTIZE"]:
                continue
            ends = int(before.inputs[0]), int(after.outputs[0])
            if [*map(graph.type, ends)] == ["INT8", "INT8"]:
                operator.inputs, operator.outputs = (np.array([each], "int32") for each in ends)
                dropped.append(after)
        graph.subgraph.operators[:] = [each for each in graph.subgraph.operators if each not in dropped]
        if dropped:
            graph.drop_unread()
