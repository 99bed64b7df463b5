"""How often the loops of a TensorFlow graph run, found from the graph alone."""

import operator

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context, execute

from keras_transformer.planning.nodes import function_of
from keras_transformer.planning.products import UnknownCostError

LOOPS = frozenset(["While", "StatelessWhile"])
_MAX_ROUNDS = 100_000


# What counters and bounds of loops are computed by; a list is what a loop keeps for its gradient.
_ARITHMETIC = {
    "AddV2": operator.add,
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "FloorDiv": operator.floordiv,
    "FloorMod": operator.mod,
    "Maximum": max,
    "Minimum": min,
    "Less": operator.lt,
    "LessEqual": operator.le,
    "Greater": operator.gt,
    "GreaterEqual": operator.ge,
    "NotEqual": operator.ne,
    "Equal": operator.eq,
    "LogicalAnd": lambda a, b: a and b,
    "LogicalOr": lambda a, b: a or b,
    "LogicalNot": operator.not_,
    "Neg": operator.neg,
    "Identity": lambda a: a,
    "Cast": lambda a: a,
    "TensorListPushBack": lambda items, item: (*items, item),
}


class Values:
    """The whole numbers of a graph that are known before it runs, as counters of loops and their bounds.

    Args:
        graph: the graph.
        inputs: function of the position of an argument of the graph to its value; None where none is known.
    """

    def __init__(self, graph, inputs=None):
        self._graph = graph
        self._inputs = inputs
        self._known = {}
        self._positions = {tensor.name: position for position, tensor in enumerate(graph.inputs)} if inputs else {}

    def of(self, tensor):
        """The value of a tensor of this graph: a number, or an array.

        Raises:
            UnknownCostError: it depends on what the graph is fed.
        """
        if tensor.name not in self._known:
            self._known[tensor.name] = self._find(tensor)
        return self._known[tensor.name]

    def _find(self, tensor):
        node = tensor.op
        if tensor.name in self._positions:
            return self._inputs(self._positions[tensor.name])
        if node.type in LOOPS:
            return self._after(node, tensor.value_index)
        if node.type == "EmptyTensorList":
            return ()
        if node.type == "TensorListPopBack":
            items = self.of(node.inputs[0])
            return items[-1] if tensor.value_index else items[:-1]
        if node.type in _ARITHMETIC and all(each.shape.rank == 0 for each in node.inputs):
            return _ARITHMETIC[node.type](*(self.of(each) for each in node.inputs))
        value = tf.get_static_value(tensor)
        if value is None and not _is_computable(node):
            raise UnknownCostError(f"The value of {tensor.name} ({node.type}), which a loop goes by, is not known.")
        if value is None:
            value = _run(node, [self.of(each) for each in node.inputs])[tensor.value_index].numpy()
        return value.item() if np.ndim(value) == 0 else value

    def inside(self, node, graph):
        """The values of a graph that `node` calls."""
        return Values(graph, lambda position: self.of(node.inputs[position]))

    def rounds(self, loop, state=None):
        """The `Values` of the body of a loop, round after round.

        Args:
            loop: node of this graph.
            state: dict of position to value of what the loop carries, kept up to date; it begins with those that are
                asked for. What decides how long the loop runs joins by itself, and what is asked of the first round.
        """
        condition, body = (function_of(self._graph, loop.get_attr(name)) for name in ("cond", "body"))
        state = {} if state is None else state
        rounds = 0

        def current(position):
            if position not in state:
                if rounds:
                    raise UnknownCostError(f"A counter of {loop.name} depends on more with every round.")
                state[position] = self.of(loop.inputs[position])
            return state[position]

        for rounds in range(_MAX_ROUNDS):  # noqa: B007 - read by `current`
            if not Values(condition, current).of(condition.outputs[0]):
                return
            values, following = Values(body, current), {}
            yield values
            while pending := [position for position in state if position not in following]:
                following |= {position: values.of(body.outputs[position]) for position in pending}
            state |= following
        raise UnknownCostError(f"{loop.name} runs more than {_MAX_ROUNDS} rounds.")

    def _after(self, loop, position):
        """What a loop carries at `position` when it has ended."""
        state = {position: self.of(loop.inputs[position])}
        for _ in self.rounds(loop, state):
            pass
        return state[position]


def _is_computable(node):
    """Whether a node makes whole numbers of others, as those are that count, and not of what the graph is fed."""
    return node.type != "Placeholder" and all(
        tensor.dtype.is_integer or tensor.dtype.is_bool for tensor in node.outputs
    )


def _run(node, values):
    """What a node gives for these values, by running it alone."""
    inputs = [tf.constant(value, tensor.dtype) for value, tensor in zip(values, node.inputs, strict=True)]
    attributes = []
    for attribute in node.op_def.attr:
        value = node.get_attr(attribute.name)
        attributes += [attribute.name, value.as_datatype_enum if isinstance(value, tf.DType) else value]
    outputs = len(node.outputs)
    return execute.execute(node.type, outputs, inputs, tuple(attributes), context.context())
