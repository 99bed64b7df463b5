"""What TFLite files are written with, so that kernels of integers compute them, and XNNPACK those of CPUs.

XNNPACK runs TFLite files on CPUs. What it has no kernel of integers for runs between the parts that it takes, on a CPU
without NEON in plain loops: the hard swishes of a MobileNetV3 take most of its time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.export.tflite.graph import Graph, graphs
from keras_transformer.export.tflite.tree import indices, read, schema, write

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import ModelT, OperatorT

# Operators with a kernel of 8 bits that TensorFlow's quantizer does not know.
_UNKNOWN = ("ELU",)
# Operators whose result has the scale of both operands.
BOUNDS = ("MINIMUM", "MAXIMUM")


def split_hard_swishes(content: bytes) -> bytes:
    """A float file whose hard swishes are sums and products, `x · min(max(x + 3, 0), 6) / 6`.

    Args:
        content: bytes of a float .tflite file.

    Returns:
        The same bytes, if there are none.
    """
    model = read(content)
    count = sum(graph.replace_operators(_split) for graph in graphs(model))
    return write(model) if count else content


def _split(graph: Graph, operator: OperatorT) -> bool:
    if graph.kind(operator) != "HARD_SWISH":
        return False
    (x,), (result,) = indices(operator.inputs), indices(operator.outputs)
    add, multiply = schema().AddOptionsT(), schema().MulOptionsT()
    add.fusedActivationFunction = schema().ActivationFunctionType.RELU6
    sizes = graph.tensors[x].shapeSignature
    shape = [None if size < 0 else int(size) for size in (graph.tensors[x].shape if sizes is None else sizes)]
    numbers = [graph.constant(np.array(each, "float32"), "hard_swish") for each in (3.0, 1 / 6)]
    gates = [graph.add_tensor(f"{graph.name(result)}/gate_{each}", "FLOAT32", shape) for each in ("sum", "product")]
    graph.emit("ADD", (x, numbers[0]), gates[0], add)
    graph.emit("MUL", (gates[0], numbers[1]), gates[1], multiply)
    graph.emit("MUL", (x, gates[1]), result, multiply)
    return True


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
