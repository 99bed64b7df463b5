"""The subgraphs of a graph: functions, and bodies of loops with their trip counts and the lists that they fill."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

from keras_transformer.planning.graph.memory import buffer_of
from keras_transformer.planning.graph.nodes import ancestors, function_graph
from keras_transformer.planning.graph.trip_counts import LOOPS, StaticValues

if TYPE_CHECKING:
    import tensorflow as tf

_CALLS = frozenset(["PartitionedCall", "StatefulPartitionedCall"])
# The inputs, of operations that append to a list, that are the list and the new element.
_APPENDS = {"TensorListPushBack": (0, 1), "TensorListSetItem": (0, 2)}
_SAME = frozenset(["Identity", "TensorListPopBack"])
_READS = frozenset(["TensorListGetItem", "TensorListPopBack"])


class Subgraphs:
    """The bodies of all loops and functions of a graph, at any depth.

    Args:
        graph: `FuncGraph`.

    Raises:
        UnknownCostError: the trip count of a loop depends on what the graph is fed.
    """

    def __init__(self, graph: tf.Graph) -> None:
        self._bodies: dict[tf.Operation, tf.Graph] = {}
        self._aliases: set[Hashable] = set()
        self._runs: Counter[Hashable] = Counter()
        self._trips: Counter[Hashable] = Counter()
        self._visit(graph, StaticValues(graph))

    def body(self, node: tf.Operation) -> Any:
        """Returns the graph that a node runs, or None."""
        return self._bodies.get(node)

    def trip_count(self, node: tf.Operation) -> float:
        """Returns how often a node runs its body; for a nested loop, the mean over the iterations of the outer one."""
        return self._trips[node] / self._runs[node]

    def list_bytes(self, tensor: tf.Tensor, size_of: Callable[[tf.Tensor], float]) -> float:
        """Returns the bytes of the elements that this graph appends to a list of tensors.

        Args:
            tensor: symbolic, of dtype variant.
            size_of: function of any other symbolic tensor to its bytes.
        """
        node, index = tensor.op, tensor.value_index
        if (body := self.body(node)) is not None:
            before = self.list_bytes(node.inputs[index], size_of) if node.type in LOOPS else 0
            return before + self.trip_count(node) * self.list_bytes(body.outputs[index], size_of)
        if node.type in _APPENDS:
            items, item = (node.inputs[index] for index in _APPENDS[node.type])
            own = 0 if node in self._aliases else self._bytes(item, size_of)
            return self.list_bytes(items, size_of) + own
        if node.type in _SAME:
            return self.list_bytes(node.inputs[0], size_of)
        return size_of(node.inputs[0]) if node.type == "TensorListFromTensor" else 0

    def popped_lists(self, node: tf.Operation) -> list[tf.Tensor]:
        """Returns the lists from which a loop of a backward pass pops one element per iteration."""
        if node.type not in LOOPS:
            return []
        body = self.body(node)
        pairs = zip(node.inputs, body.inputs, body.outputs, strict=True)
        shorter = [(tensor, state, output.op) for tensor, state, output in pairs if is_list(tensor)]
        return [
            tensor for tensor, state, last in shorter if last.type == "TensorListPopBack" and last.inputs[0] is state
        ]

    def _bytes(self, tensor: tf.Tensor, size_of: Callable[[tf.Tensor], float]) -> float:
        return self.list_bytes(tensor, size_of) if is_list(tensor) else size_of(tensor)

    def _visit(self, graph: tf.Graph, values: StaticValues) -> None:
        for node in ancestors([tensor.op for tensor in graph.outputs]):
            if node.type in LOOPS:
                self._visit_loop(node, graph, values)
            elif node.type in _CALLS:
                body = self._bodies[node] = function_graph(graph, node.get_attr("f"))
                self._runs[node] += 1
                self._trips[node] += 1
                self._visit(body, values.callee(node, body))

    def _visit_loop(self, loop: tf.Operation, graph: tf.Graph, values: StaticValues) -> None:
        body = self._bodies[loop] = function_graph(graph, loop.get_attr("body"))
        self._aliases |= _aliases(body)
        has_subgraphs = any(node.type in LOOPS | _CALLS for node in body.get_operations())
        self._runs[loop] += 1
        for each in values.iterations(loop):
            self._trips[loop] += 1
            if has_subgraphs:
                self._visit(body, each)


def is_list(tensor: tf.Tensor) -> bool:
    """Returns whether a symbolic tensor is a list of tensors."""
    return tensor.dtype.name == "variant"


def _aliases(body: tf.Graph) -> set[Hashable]:
    """Returns the nodes of a loop's body that append a tensor which is in memory anyway.

    Such a tensor was read from a list, is appended by another node too, never changes, or is a loop variable whose next
    value is appended: in the next iteration it is that value.
    """
    nodes = ancestors([tensor.op for tensor in body.outputs])
    appended = {node: buffer_of(node.inputs[_APPENDS[node.type][1]]) for node in nodes if node.type in _APPENDS}
    following = {state.ref(): buffer_of(output) for state, output in zip(body.inputs, body.outputs, strict=True)}
    known = {tensor.ref() for tensor in appended.values() if tensor.op.type != "Placeholder"}
    found, seen = set(), set()
    for node, tensor in appended.items():
        after = following.get(tensor.ref())
        is_known = after is not None and (after is tensor or after.ref() in known)
        if is_known or tensor.op.type in _READS or tensor.ref() in seen:
            found.add(node)
        seen.add(tensor.ref())
    return found
