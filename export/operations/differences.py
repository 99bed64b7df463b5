"""Numbers of which a runtime computes another result than TensorFlow, as far as a model can meet them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING

import tensorflow as tf

from keras_transformer.export.graph.operation_results import result_types
from keras_transformer.export.graph.part import GraphPart, Node, node_name
from keras_transformer.export.operations.operation import NAN
from keras_transformer.export.operations.table import OPERATIONS

if TYPE_CHECKING:
    from tensorflow.core.framework.function_pb2 import FunctionDef
    from tensorflow.core.framework.graph_pb2 import GraphDef

    from keras_transformer.export.graph.traced_graph import TracedGraph

_CHECKS, _COMPARISONS = ("IsNan", "IsFinite", "IsInf"), ("Equal", "NotEqual")
_LOGIC = ("LogicalAnd", "LogicalOr", "LogicalNot", "Identity")
_SELECTS = ("Select", "SelectV2")
_NUMBERLESS = ("Shape", "ShapeN", "Size", "Rank", "ZerosLike", "OnesLike")
_LOOPS, _BRANCHES = ("While", "StatelessWhile"), ("If", "StatelessIf")


def known_differences(
    graph: TracedGraph, format: str, locate: Callable[[str, str], str], recurrent: Collection[str] = ()
) -> list[str]:
    """What the file of a signature computes otherwise than Keras, a line for each input.

    NaN counts where the model tells it from numbers, selects others in its place, or computes something else than floats
    of it, such as a comparison or a place in a sorted row: elsewhere the result of Keras is NaN as well, and shows nothing.

    Args:
        graph: `TracedGraph` of the signature.
        format: name of the format.
        locate: the layer that an operation came from, of the name of the operation and that of the node.
        recurrent: names of the layers whose loops are operators of the file, which limit what they take.
    """

    def differs(node: Node) -> bool:
        is_recurrent = node.op in _LOOPS and locate(node.op, node.message.name) in recurrent
        return is_recurrent or _differs_for_nan(node, format)

    part = GraphPart(graph.graph_def.node, graph.outputs.values())
    floats = {node.message.name for node in part if node.message.name in graph.inputs and all(_holds_nan(node))}
    lines: list[str] = []
    for name in (each for each in graph.inputs if each in floats):
        reached = _Reached(graph.graph_def, part, name)
        found = list(filter(differs, reached.nodes)) if reached.is_told else []
        if found:
            named = ((node.op.removeprefix("Stateless"), locate(node.op, node.message.name)) for node in found)
            places = dict.fromkeys(f"{operation} of layer '{layer}'" for operation, layer in named)
            lines.append(f"differs from Keras for NaN in '{name}': {_listed(list(places))}")
    return lines


def _differs_for_nan(node: Node, format: str) -> bool:
    operation = OPERATIONS.get(node.op)
    regions = () if operation is None else operation.differs.get(format, ())
    return any(each.name == NAN and each.when(node) for each in regions)


def _listed(places: list[str], most: int = 3) -> str:
    shown = ", ".join(places[:most])
    return shown if len(places) <= most else f"{shown} and {len(places) - most} more"


class _Reached:
    """The operations that NaN of an input reaches.

    Args:
        graph_def: `GraphDef`.
        part: the `GraphPart` of its nodes, without its functions.
        name: of the input.

    Attributes:
        nodes: list of their `Node`s.
        is_told: bool. Whether one of them tells NaN from numbers, selects between what may be NaN and something else, or
            computes no floats.
    """

    def __init__(self, graph_def: GraphDef, part: GraphPart, name: str) -> None:
        self._functions = {each.signature.name: each for each in graph_def.library.function}
        self.nodes: list[Node] = []
        self.is_told = False
        self._spread(part, {name})

    def _spread(self, part: GraphPart, names: set[str]) -> None:
        """Follows NaN from tensors of a graph, or of a function, to all that is computed from them."""
        nodes = list(part)
        while len(left := list(self._unreached(nodes, names))) < len(nodes):
            nodes = left  # Not every operation comes behind those that it reads.

    def _unreached(self, nodes: list[Node], names: set[str]) -> Iterator[Node]:
        """The operations that read none of the tensors; the results of the others join these."""
        for node in nodes:
            read = list(map(node_name, node.inputs))
            if names.isdisjoint(read):
                yield node
                continue
            self.nodes.append(node)
            self._enter(node, [each in names for each in read])
            if node.op in _NUMBERLESS:
                continue
            is_choice = node.op in _SELECTS and not names.isdisjoint(read[1:])
            is_call = node.op in self._functions
            is_entered = is_call or node.op in (*_LOOPS, *_BRANCHES)
            self.is_told |= is_choice or not (is_entered or all(_holds_nan(node)))
            if is_call or (any(_holds_nan(node)) and not (is_choice and _checks(node.producer(0)))):
                names.add(node.message.name)

    def _enter(self, node: Node, given: list[bool]) -> None:
        """Follows what a loop, a branch or a function is given into it."""
        given = given[1:] if node.op in _BRANCHES else given
        for function in self._called(node):
            arguments = [each.name for each in function.signature.input_arg]
            names = {name for name, is_nan in zip(arguments, given, strict=False) if is_nan}
            if names:
                self._spread(GraphPart.of_function(function), names)

    def _called(self, node: Node) -> Iterator[FunctionDef]:
        """The functions of a loop or a branch, or the one that is called by its name."""
        if node.op in self._functions:
            yield self._functions[node.op]
        if node.op in (*_LOOPS, *_BRANCHES):
            names = (each.func.name for each in node.message.attr.values())
            yield from (self._functions[name] for name in names if name in self._functions)


def _holds_nan(node: Node) -> list[bool]:
    """Whether each result may be NaN where an operand is."""
    types = map(tf.as_dtype, result_types(node.op, node.message.attr))
    return [each.is_floating or each.is_complex or each == tf.variant for each in types]


def _is_check(node: Node) -> bool:
    """Whether an operation tells NaN from numbers, as `x == x` does."""
    return node.op in _CHECKS or (node.op in _COMPARISONS and node.inputs[0] == node.inputs[1])


def _checks(node: Node | None) -> bool:
    """Whether a condition tells NaN from numbers."""
    if node is None:
        return False
    count = len(node.inputs) if node.op in _LOGIC else 0
    return _is_check(node) or any(_checks(node.producer(each)) for each in range(count))
