"""Trip counts of the loops of a TensorFlow graph, by evaluating their counters and bounds."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context, execute

from keras_transformer.planning.errors import UnknownCostError
from keras_transformer.planning.graph.nodes import function_graph

LOOPS = frozenset(["While", "StatelessWhile"])
_MAX_TRIPS = 100_000
# A number, an array, or the tuple of what a list of tensors holds.
Value: TypeAlias = Any


# Operations on counters and bounds of loops; a list is what a loop stores for its gradient.
_ARITHMETIC: dict[str, Callable[..., Value]] = {
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


class StaticValues:
    """The integers of a graph that are known before it runs, such as counters of loops and their bounds.

    Args:
        graph: the graph.
        inputs: function of the index of an argument of the graph to its value; None if none is known.
    """

    def __init__(self, graph: tf.Graph, inputs: Callable[[int], Value] | None = None) -> None:
        self._graph = graph
        self._inputs = inputs
        self._known: dict[str, Value] = {}
        self._indices = {tensor.name: index for index, tensor in enumerate(graph.inputs)} if inputs else {}

    def value(self, tensor: tf.Tensor) -> Value:
        """Returns the value of a tensor of this graph: a number or an array.

        Raises:
            UnknownCostError: it depends on what the graph is fed.
        """
        if tensor.name not in self._known:
            self._known[tensor.name] = self._evaluate(tensor)
        return self._known[tensor.name]

    def _evaluate(self, tensor: tf.Tensor) -> Value:
        node = tensor.op
        if self._inputs is not None and tensor.name in self._indices:
            return self._inputs(self._indices[tensor.name])
        if node.type in LOOPS:
            return self._after(node, tensor.value_index)
        if node.type == "EmptyTensorList":
            return ()
        if node.type == "TensorListPopBack":
            items = self.value(node.inputs[0])
            return items[-1] if tensor.value_index else items[:-1]
        if node.type in _ARITHMETIC and all(each.shape.rank == 0 for each in node.inputs):
            return _ARITHMETIC[node.type](*(self.value(each) for each in node.inputs))
        value = tf.get_static_value(tensor)
        if value is None and not _is_computable(node):
            raise UnknownCostError(f"The value of {tensor.name} ({node.type}), which bounds a loop, is not known.")
        if value is None:
            value = _run(node, [self.value(each) for each in node.inputs])[tensor.value_index].numpy()
        return value.item() if np.ndim(value) == 0 else value

    def callee(self, node: tf.Operation, graph: tf.Graph) -> StaticValues:
        """Returns the values of a graph that `node` calls."""
        return StaticValues(graph, lambda index: self.value(node.inputs[index]))

    def iterations(self, loop: tf.Operation, state: dict[int, Value] | None = None) -> Iterator[StaticValues]:
        """Yields the `StaticValues` of the body of a loop, for each iteration.

        Args:
            loop: node of this graph.
            state: dict of index to value of loop variables, updated in place; initially those that the caller needs. Those
                that the condition depends on, and that the caller evaluates in the first iteration, are added.
        """
        condition, body = (function_graph(self._graph, loop.get_attr(name)) for name in ("cond", "body"))
        loop_state: dict[int, Value] = {} if state is None else state
        trips = 0

        def current(index: int) -> Value:
            if index not in loop_state:
                if trips:
                    raise UnknownCostError(f"A counter of {loop.name} depends on more with every iteration.")
                loop_state[index] = self.value(loop.inputs[index])
            return loop_state[index]

        for trips in range(_MAX_TRIPS):  # noqa: B007 - read by `current`
            if not StaticValues(condition, current).value(condition.outputs[0]):
                return
            values = StaticValues(body, current)
            following: dict[int, Value] = {}
            yield values
            while pending := [index for index in loop_state if index not in following]:
                following |= {index: values.value(body.outputs[index]) for index in pending}
            loop_state |= following
        raise UnknownCostError(f"{loop.name} runs more than {_MAX_TRIPS} iterations.")

    def _after(self, loop: tf.Operation, index: int) -> Value:
        """Returns the loop variable at `index` after the last iteration."""
        state = {index: self.value(loop.inputs[index])}
        for _ in self.iterations(loop, state):
            pass
        return state[index]


def _is_computable(node: tf.Operation) -> bool:
    """Whether a node computes integers or booleans, as counters are, and is no input of the graph."""
    return node.type != "Placeholder" and all(
        tensor.dtype.is_integer or tensor.dtype.is_bool for tensor in node.outputs
    )


def _run(node: tf.Operation, values: list[Value]) -> list[tf.Tensor]:
    """Executes one node eagerly."""
    inputs = [tf.constant(value, tensor.dtype) for value, tensor in zip(values, node.inputs, strict=True)]
    attributes: list[object] = []
    for attribute in node.op_def.attr:
        value = node.get_attr(attribute.name)
        attributes += [attribute.name, value.as_datatype_enum if isinstance(value, tf.DType) else value]
    outputs = len(node.outputs)
    return execute.execute(node.type, outputs, inputs, tuple(attributes), context.context())
