"""Which weights of a traced graph only products, lookups and convolutions read, as they are or in another order."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.export.graph.part import constant_value, node_name
from keras_transformer.export.operations.table import OPERATIONS

if TYPE_CHECKING:
    from tensorflow.core.framework.function_pb2 import FunctionDef
    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef

# Products of other than matrices are written otherwise.
_OF_MATRICES = ("MatMul", "BatchMatMulV2")
_LOOPS = ("While", "StatelessWhile")


def plainly_read(graph_def: GraphDef, weights: Iterable[str], outputs: Iterable[str]) -> tuple[set[str], set[str]]:
    """Finds the weights with which the converter has nothing to compute.

    Args:
        graph_def: `GraphDef`.
        weights: names of the placeholders of the weights.
        outputs: names of the nodes that compute the results.

    Returns:
        The names of all weights that the results depend on, and those of them that go, reshaped or transposed, into
        products as the second operand, into lookups of rows and into convolutions, and nowhere else.
    """
    nodes = {node.name: node for node in graph_def.node}
    live = _reachable(nodes, outputs)
    functions = {function.signature.name: function for function in graph_def.library.function}
    readers = _Readers([node for node in graph_def.node if node.name in live], functions)
    read = live.intersection(weights)
    ranks = {name: len(nodes[name].attr["shape"].shape.dim) for name in read}
    return read, {name for name in read if readers.are_plain(name, ranks[name])}


def _reachable(nodes: dict[str, NodeDef], outputs: Iterable[str]) -> set[str]:
    """The names of the nodes that outputs depend on."""
    found: set[str] = set()
    pending = [*outputs]
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending.extend(map(node_name, nodes[name].input))
    return found


class _Readers:
    """The consumers of tensors in a graph or in a function."""

    def __init__(self, nodes: Sequence[NodeDef], functions: dict[str, FunctionDef]) -> None:
        self._nodes = {node.name: node for node in nodes}
        self._functions = functions
        self._bodies: dict[str, _Readers] = {}
        self._readers: dict[str, list[tuple[NodeDef, int]]] = collections.defaultdict(list)
        for node in nodes:
            for position, source in enumerate(node.input):
                self._readers[node_name(source)].append((node, position))

    def are_plain(self, name: str, rank: int) -> bool:
        """Whether all consumers of a tensor, which is the result of a node or an argument, are of the known kinds."""
        return all(self._is_plain(node, position, rank) for node, position in self._readers[name])

    def _is_plain(self, node: NodeDef, position: int, rank: int) -> bool:
        if node.op in _LOOPS:
            return self._are_plain_in_loop(node, position, rank)
        operation = OPERATIONS.get(node.op)
        if operation is None:
            return False
        if operation.moves_weight and position == 0:
            return self._is_moved(node, rank)
        if operation.reads_weight != position:
            return False
        if node.op == "GatherV2":
            axis = self._constant(node.input[2])
            is_of_rows = axis is not None and not axis.any() and not node.attr["batch_dims"].i
            # The converter looks up constant indices itself.
            return is_of_rows and self._depends_on_inputs(node.input[1])
        return rank == 2 or node.op not in _OF_MATRICES

    def _is_moved(self, node: NodeDef, rank: int) -> bool:
        """`are_plain` of a weight in another layout."""
        if len(node.input) == 1:
            return self.are_plain(node.name, rank)
        sizes = self._constant(node.input[1])
        return sizes is not None and self.are_plain(node.name, len(sizes))

    def _are_plain_in_loop(self, node: NodeDef, position: int, rank: int) -> bool:
        """`are_plain` of a weight that a loop hands on unchanged."""
        for kind in ("cond", "body"):
            function = self._functions[node.attr[kind].func.name]
            argument = function.signature.input_arg[position].name
            result = function.ret[function.signature.output_arg[position].name] if kind == "body" else argument
            body = self._body(function)
            if body.source(result) != argument or not body.are_plain(argument, rank):
                return False
        return True

    def _body(self, function: FunctionDef) -> _Readers:
        name = function.signature.name
        if name not in self._bodies:
            self._bodies[name] = _Readers(function.node_def, self._functions)
        return self._bodies[name]

    def source(self, name: str) -> str:
        """The tensor that a tensor is equal to."""
        node = self._nodes.get(node_name(name))
        return self.source(node.input[0]) if node is not None and node.op == "Identity" else node_name(name)

    def _depends_on_inputs(self, source: str) -> bool:
        """Whether a tensor depends on the values of inputs, not only on their shapes."""
        pending, seen = [node_name(source)], set()
        while pending:
            name = pending.pop()
            node = self._nodes.get(name)
            if node is None or node.op == "Placeholder":
                return True
            if name not in seen and node.op != "Shape":
                seen.add(name)
                pending.extend(map(node_name, node.input))
        return False

    def _constant(self, source: str) -> np.ndarray | None:
        return constant_value(self._nodes.get(node_name(source)))
