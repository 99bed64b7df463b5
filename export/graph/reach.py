"""What a graph computes from one of its inputs: the operations, followed into loops, branches and functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from keras_transformer.export.graph.part import GraphPart, Node, node_name

if TYPE_CHECKING:
    from tensorflow.core.framework.function_pb2 import FunctionDef

    from keras_transformer.export.graph.traced_graph import TracedGraph

LOOPS, _BRANCHES = ("While", "StatelessWhile"), ("If", "StatelessIf")


class Read(NamedTuple):
    """An operation that is reached.

    Args:
        node: its `Node`.
        given: whether each of its operands is computed from the input.
        is_entered: whether it is a loop, a branch or a function, whose own operations are reached instead.
    """

    node: Node
    given: Sequence[bool]
    is_entered: bool


def reads_of(graph: TracedGraph, name: str, passes: Callable[[Read], bool]) -> list[Read]:
    """The operations that values of an input reach.

    Args:
        graph: `TracedGraph`.
        name: of the input.
        passes: whether such values get into the results of an operation.
    """
    reach = _Reach(graph, passes)
    reach.spread(GraphPart(graph.graph_def.node, graph.outputs.values()), {name})
    return reach.found


class _Reach:
    """See `reads_of`."""

    def __init__(self, graph: TracedGraph, passes: Callable[[Read], bool]) -> None:
        self._functions = {each.signature.name: each for each in graph.graph_def.library.function}
        self._passes = passes
        self.found: list[Read] = []

    def spread(self, part: GraphPart, names: set[str]) -> None:
        """Follows values from tensors of a graph, or of a function, to all that is computed from them."""
        nodes = list(part)
        while len(left := list(self._unreached(nodes, names))) < len(nodes):
            nodes = left  # Not every operation comes behind those that it reads.

    def _unreached(self, nodes: list[Node], names: set[str]) -> Iterator[Node]:
        """The operations that read none of the tensors; the results of the others join these."""
        for node in nodes:
            is_entered = node.op in self._functions or node.op in (*LOOPS, *_BRANCHES)
            found = Read(node, [node_name(each) in names for each in node.inputs], is_entered)
            if not any(found.given):
                yield node
                continue
            self.found.append(found)
            self._enter(found)
            if node.op in self._functions or self._passes(found):
                names.add(node.message.name)

    def _enter(self, read: Read) -> None:
        """Follows what a loop, a branch or a function is given into it."""
        given = read.given[1:] if read.node.op in _BRANCHES else read.given
        for function in self._called(read.node):
            arguments = [each.name for each in function.signature.input_arg]
            names = {name for name, is_given in zip(arguments, given, strict=False) if is_given}
            if names:
                self.spread(GraphPart.of_function(function), names)

    def _called(self, node: Node) -> Iterator[FunctionDef]:
        """The functions of a loop or a branch, or the one that is called by its name."""
        if node.op in self._functions:
            yield self._functions[node.op]
        if node.op in (*LOOPS, *_BRANCHES):
            names = (each.func.name for each in node.message.attr.values())
            yield from (self._functions[name] for name in names if name in self._functions)
