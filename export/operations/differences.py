"""Numbers of which a runtime computes another result than TensorFlow, as far as a model can meet them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING

import tensorflow as tf

from keras_transformer.export.graph.operation_results import result_types
from keras_transformer.export.graph.part import GraphPart, Node
from keras_transformer.export.graph.reach import LOOPS, Read, reads_of
from keras_transformer.export.operations.operation import NAN, ONNX, TFLITE
from keras_transformer.export.operations.table import OPERATIONS

if TYPE_CHECKING:
    from keras_transformer.export.graph.traced_graph import TracedGraph

_COMPARISONS = ("Equal", "NotEqual")
_LOGIC = ("LogicalAnd", "LogicalOr", "LogicalNot", "Identity")
_SELECTS = ("Select", "SelectV2")
_NUMBERLESS = ("Shape", "ShapeN", "Size", "Rank", "ZerosLike", "OnesLike")


def known_differences(
    graph: TracedGraph, format: str, locate: Callable[[str, str], str], recurrent: Collection[str] = ()
) -> dict[str, str]:
    """What the file of a signature computes otherwise than Keras: a line for each input of which it does.

    NaN counts where the model tells it from numbers, selects others in its place, or computes something else than floats
    of it, such as a comparison or a place in a sorted row: elsewhere the result of Keras is NaN as well, and shows nothing.

    Args:
        graph: `TracedGraph` of the signature.
        format: name of the format.
        locate: the layer that an operation came from, of the name of the operation and that of the node.
        recurrent: names of the layers whose loops are operators of the file, which limit what they take.
    """

    def differs(node: Node) -> bool:
        is_recurrent = node.op in LOOPS and locate(node.op, node.message.name) in recurrent
        return is_recurrent or _differs_for_nan(node, format)

    lines: dict[str, str] = {}
    if not any(map(differs, _every_node(graph))):
        return lines  # Without a search from each input: a language model has two for each layer.
    for name in _inputs_with_nan(graph):
        reads = reads_of(graph, name, _passes(_is_check))
        found = [each.node for each in reads if differs(each.node)] if any(map(_is_told, reads)) else []
        if found:
            named = ((node.op.removeprefix("Stateless"), locate(node.op, node.message.name)) for node in found)
            places = dict.fromkeys(f"{operation} of layer '{layer}'" for operation, layer in named)
            lines[name] = f"differs from Keras for NaN in '{name}': {_listed(list(places))}"
    return lines


def inputs_told_apart(graph: TracedGraph, tells: Callable[[Node], bool]) -> list[str]:
    """The inputs of which a model tells NaN or infinities from other numbers, where that is defined.

    What integer NaN is cast to is not, and infinities become NaN in a product. Nor is what a loop makes of infinities:
    operators of a whole recurrent layer limit what they take. Operations of which a runtime is known to compute something
    else of NaN are named in the report.

    Args:
        graph: `TracedGraph` of the signature.
        tells: whether an operation does: `tells_nan` or `tells_infinities`.
    """
    if not any(map(tells, _every_node(graph))):
        return []

    def is_told_apart(name: str) -> bool:
        reads = [each.node for each in reads_of(graph, name, _passes(tells))]
        has_loop = tells is tells_infinities and any(each.op in LOOPS for each in reads)
        is_known = any(_differs_for_nan(each, format) for each in reads for format in (TFLITE, ONNX))
        return any(map(tells, reads)) and not (has_loop or is_known or any(map(_is_cast_to_integer, reads)))

    return list(filter(is_told_apart, _inputs_with_nan(graph)))


def tells_nan(node: Node) -> bool:
    """Whether an operation tells NaN from numbers, as `x == x` does."""
    return node.op in ("IsNan", "IsFinite") or (node.op in _COMPARISONS and node.inputs[0] == node.inputs[1])


def tells_infinities(node: Node) -> bool:
    """Whether an operation tells infinities from other numbers."""
    return node.op in ("IsInf", "IsFinite")


def _every_node(graph: TracedGraph) -> Iterator[Node]:
    """The operations of a graph and of its functions."""
    yield from GraphPart(graph.graph_def.node, graph.outputs.values())
    for function in graph.graph_def.library.function:
        yield from GraphPart.of_function(function)


def _inputs_with_nan(graph: TracedGraph) -> list[str]:
    part = GraphPart(graph.graph_def.node, graph.outputs.values())
    floats = {node.message.name for node in part if node.message.name in graph.inputs and any(_holds_nan(node))}
    return [name for name in graph.inputs if name in floats]


def _differs_for_nan(node: Node, format: str) -> bool:
    operation = OPERATIONS.get(node.op)
    regions = () if operation is None else operation.differs.get(format, ())
    return any(each.name == NAN and each.when(node) for each in regions)


def _is_cast_to_integer(node: Node) -> bool:
    return node.op == "Cast" and node.dtype().is_floating and node.attribute("DstT").is_integer


def _listed(places: list[str], most: int = 3) -> str:
    shown = ", ".join(places[:most])
    return shown if len(places) <= most else f"{shown} and {len(places) - most} more"


def _passes(tells: Callable[[Node], bool]) -> Callable[[Read], bool]:
    """Whether a result may be NaN where an operand is: no number is selected in the place of what an operation tells."""
    return lambda read: any(_holds_nan(read.node)) and not (_is_choice(read) and _checks(read.node.producer(0), tells))


def _is_told(read: Read) -> bool:
    """Whether an operation selects between what may be NaN and something else, or computes no floats of it."""
    is_counted = not read.is_entered and read.node.op not in _NUMBERLESS
    return is_counted and (_is_choice(read) or not all(_holds_nan(read.node)))


def _is_choice(read: Read) -> bool:
    """Whether an operation selects between what may be NaN and something else."""
    return read.node.op in _SELECTS and any(read.given[1:])


def _holds_nan(node: Node) -> list[bool]:
    """Whether each result may be NaN where an operand is."""
    if node.op in _NUMBERLESS:
        return [False]
    types = map(tf.as_dtype, result_types(node.op, node.message.attr))
    return [each.is_floating or each.is_complex or each == tf.variant for each in types]


def _is_check(node: Node) -> bool:
    """Whether an operation tells NaN or infinities from other numbers."""
    return tells_nan(node) or tells_infinities(node)


def _checks(node: Node | None, tells: Callable[[Node], bool]) -> bool:
    """Whether a condition is what some operation tells."""
    if node is None:
        return False
    count = len(node.inputs) if node.op in _LOGIC else 0
    return tells(node) or any(_checks(node.producer(each), tells) for each in range(count))
