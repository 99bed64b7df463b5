"""The graphs within a graph: bodies of loops, with how often they turn and what they keep of each round, and functions."""

from collections import Counter

from keras_transformer.planning.memory import buffer_of
from keras_transformer.planning.nodes import function_of, needed
from keras_transformer.planning.rounds import LOOPS, Values

_CALLS = frozenset(["PartitionedCall", "StatefulPartitionedCall"])
# Which input of what makes a list longer is the list, and which the new element.
_LONGER = {"TensorListPushBack": (0, 1), "TensorListSetItem": (0, 2)}
_SAME = frozenset(["Identity", "TensorListPopBack"])
_READS = frozenset(["TensorListGetItem", "TensorListPopBack"])


class InnerGraphs:
    """The bodies of all loops and functions of a graph, at any depth.

    Args:
        graph: `FuncGraph`.

    Raises:
        UnknownCostError: how often a loop turns depends on what the graph is fed.
    """

    def __init__(self, graph):
        self._bodies, self._aliases = {}, set()
        self._runs, self._rounds = Counter(), Counter()
        self._visit(graph, Values(graph))

    def body(self, node):
        """The graph that a node runs, or None."""
        return self._bodies.get(node)

    def rounds(self, node):
        """How often the node runs it; the mean, of a loop within another that turns longer in some of its rounds."""
        return self._rounds[node] / self._runs[node]

    def list_bytes(self, tensor, size_of):
        """Bytes of the elements of a list of tensors that this graph has put there: none of one that comes from outside.

        Args:
            tensor: symbolic, of dtype variant.
            size_of: function of any other symbolic tensor to its bytes.
        """
        node, index = tensor.op, tensor.value_index
        if (body := self.body(node)) is not None:
            before = self.list_bytes(node.inputs[index], size_of) if node.type in LOOPS else 0
            return before + self.rounds(node) * self.list_bytes(body.outputs[index], size_of)
        if node.type in _LONGER:
            items, item = (node.inputs[index] for index in _LONGER[node.type])
            own = 0 if node in self._aliases else self._bytes(item, size_of)
            return self.list_bytes(items, size_of) + own
        if node.type in _SAME:
            return self.list_bytes(node.inputs[0], size_of)
        return size_of(node.inputs[0]) if node.type == "TensorListFromTensor" else 0

    def emptied(self, node):
        """The lists that a loop of a backward pass takes to pieces, one element each round."""
        if node.type not in LOOPS:
            return []
        body = self.body(node)
        pairs = zip(node.inputs, body.inputs, body.outputs, strict=True)
        shorter = [(tensor, state, output.op) for tensor, state, output in pairs if is_list(tensor)]
        return [
            tensor for tensor, state, last in shorter if last.type == "TensorListPopBack" and last.inputs[0] is state
        ]

    def _bytes(self, tensor, size_of):
        return self.list_bytes(tensor, size_of) if is_list(tensor) else size_of(tensor)

    def _visit(self, graph, values):
        for node in needed([tensor.op for tensor in graph.outputs]):
            if node.type in LOOPS:
                self._visit_loop(node, graph, values)
            elif node.type in _CALLS:
                body = self._bodies[node] = function_of(graph, node.get_attr("f"))
                self._runs[node] += 1
                self._rounds[node] += 1
                self._visit(body, values.inside(node, body))

    def _visit_loop(self, loop, graph, values):
        body = self._bodies[loop] = function_of(graph, loop.get_attr("body"))
        self._aliases |= _aliases(body)
        holds_others = any(node.type in LOOPS | _CALLS for node in body.get_operations())
        self._runs[loop] += 1
        for each in values.rounds(loop):
            self._rounds[loop] += 1
            if holds_others:
                self._visit(body, each)


def is_list(tensor):
    return tensor.dtype.name == "variant"


def _aliases(body):
    """The nodes of a loop's body that put something into a list which stands in memory without them.

    That is what came out of a list, what another node puts into one too, what never changes, and a state whose next value
    is put into one: in the next round it is that.
    """
    nodes = needed([tensor.op for tensor in body.outputs])
    kept = {node: buffer_of(node.inputs[_LONGER[node.type][1]]) for node in nodes if node.type in _LONGER}
    following = {state.ref(): buffer_of(output) for state, output in zip(body.inputs, body.outputs, strict=True)}
    known = {tensor.ref() for tensor in kept.values() if tensor.op.type != "Placeholder"}
    found, seen = set(), set()
    for node, tensor in kept.items():
        after = following.get(tensor.ref())
        is_known = after is not None and (after is tensor or after.ref() in known)
        if is_known or tensor.op.type in _READS or tensor.ref() in seen:
            found.add(node)
        seen.add(tensor.ref())
    return found
