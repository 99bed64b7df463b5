"""What a traced signature reads, and what it computes from its weights and constants alone.

Converters evaluate such expressions (a table of positions, the factor of a batch normalization) and store the result.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

# The values of their inputs do not matter.
_OF_SHAPES = frozenset(["Shape", "ShapeN", "Size", "Rank", "ZerosLike", "OnesLike"])
_READS = "ReadVariableOp"
_LAYOUT = frozenset([_READS, "Identity", "Reshape", "Transpose", "ExpandDims", "Squeeze", "Cast", "Placeholder"])
# Tensors that are computed at a time.
_FETCHES = 100


class TracedConstants:
    """The constant part of one concrete function.

    Args:
        function: concrete function whose weights are inputs, or captured variables.
        weights: dict of the name of an input to its `tf.Variable`.
        names: dict of the id of a `tf.Variable` to the name of the variable.
    """

    def __init__(self, function: Any, weights: Mapping[str, Any], names: Mapping[int, str]) -> None:
        graph = function.graph
        self._graph, self._outputs = graph, function.outputs
        self._weights = dict(weights)
        handles = {id(each.handle): each for each in graph.variables}
        self._handles = {inner.op.name: handles[id(outer)] for outer, inner in graph.captures if id(outer) in handles}
        self._names: dict[str, str] = {
            place: names.get(id(each)) or str(each.name) for place, each in {**self._handles, **self._weights}.items()
        }

    @functools.cached_property
    def read(self) -> set[str]:
        """Names of the variables that an output depends on."""
        pending, seen = [tensor.op for tensor in self._outputs], set()
        while pending:
            operation = pending.pop()
            if operation.name not in seen:
                seen.add(operation.name)
                if operation.type not in _OF_SHAPES:
                    pending += [tensor.op for tensor in operation.inputs]
        return {name for place, name in self._names.items() if place in seen}

    @functools.cached_property
    def readers(self) -> dict[str, set[str]]:
        """For each variable the names of the operations between it and, inclusive, the first ones with other inputs."""
        found: dict[str, set[str]] = {}
        for place, name in self._names.items():
            pending, seen = [self._graph.get_operation_by_name(place)], found.setdefault(name, set())
            while pending:
                operation = pending.pop()
                for each in {user for tensor in operation.outputs for user in tensor.consumers()}:
                    if each.name not in seen:
                        seen.add(each.name)
                        if each.name in self._known:
                            pending.append(each)
        return found

    @functools.cached_property
    def computed_with(self) -> set[str]:
        """Names of the variables from which further constants are computed, or that a loop or a branch reads."""
        found = set()
        for name, operations in self.readers.items():
            for each in map(self._graph.get_operation_by_name, operations):
                is_computed = each.name in self._known and each.type not in _LAYOUT
                if is_computed or any(attribute.HasField("func") for attribute in each.node_def.attr.values()):
                    found.add(name)
        return found

    @functools.cached_property
    def _known(self) -> dict[str, Any]:
        """Operations that depend on no input, by name: None, or the variable that one reads, or its value."""
        known: dict[str, Any] = {**dict.fromkeys(self._handles), **self._weights}
        for operation in self._graph.get_operations():
            if operation.type == "Placeholder" or operation.name in known:
                continue
            if operation.type == _READS and operation.inputs[0].op.name in self._handles:
                known[operation.name] = self._handles[operation.inputs[0].op.name]
            elif operation.type == "Const" or _is_known(operation, known):
                known[operation.name] = None
            elif (value := _static_value(operation)) is not None:
                known[operation.name] = value
        return known

    def values(self, sizes: set[int]) -> Iterator[tuple[set[str], np.ndarray]]:
        """Yields constant tensors of floats.

        Args:
            sizes: their numbers of elements.

        Yields:
            `(names, array)`: the variables that it depends on, and the values.
        """
        fetches = []
        for name, value in self._known.items():
            operation = self._graph.get_operation_by_name(name)
            if value is None and operation.type != "Placeholder":
                fetches += [
                    each
                    for each in operation.outputs
                    if each.dtype.is_floating
                    and (each.shape.num_elements() is None or each.shape.num_elements() in sizes)
                ]
        for tensor, array in self._evaluated(fetches):
            if array.size in sizes:
                yield self._sources(tensor.op), array

    @functools.cached_property
    def scalars(self) -> set[float]:
        """All constant numbers."""
        found = {float(array.reshape(())) for _, array in self.values({1})}
        for function in self._graph.as_graph_def().library.function:
            for node in function.node_def:
                if node.op == "Const" and node.attr["dtype"].type == tf.float32.as_datatype_enum:
                    array = tf.make_ndarray(node.attr["value"].tensor)
                    found |= {float(array.reshape(()))} if array.size == 1 else set()
        return found

    def _evaluated(self, fetches: list[Any]) -> Iterator[tuple[Any, np.ndarray]]:
        if not fetches:
            return
        with tf.Graph().as_default() as graph, tf.device("/cpu:0"):
            tf.import_graph_def(self._constant_graph, name="")
        session = tf.compat.v1.Session(graph=graph)
        for start in range(0, len(fetches), _FETCHES):
            part = fetches[start : start + _FETCHES]
            yield from zip(part, session.run([each.name for each in part], self._feeds(part)), strict=True)
        session.close()

    def _feeds(self, fetches: list[Any]) -> dict[str, np.ndarray]:
        """The values of the variables and other known values that some tensors depend on."""
        needed = set().union(*(self._origins(each.op) for each in fetches))
        values = {name: self._known[name] for name in needed if self._known.get(name) is not None}
        return {f"{name}:0": each.numpy() if hasattr(each, "numpy") else each for name, each in values.items()}

    @functools.cached_property
    def _constant_graph(self) -> Any:
        """The graph of the constants alone: the rest may be large."""
        kept = self._known.keys() - self._handles.keys()
        graph_def = tf.compat.v1.GraphDef()
        for node in self._graph.as_graph_def().node:
            if node.name in kept:
                made = graph_def.node.add()
                made.CopyFrom(node)
                if self._known[node.name] is not None:  # It is fed.
                    del made.input[:]
                    made.op = "Placeholder"
                    kind = self._graph.get_operation_by_name(node.name).outputs[0].dtype
                    made.attr.clear()
                    made.attr["dtype"].type = kind.as_datatype_enum
        return graph_def

    def _origins(self, operation: Any) -> set[str]:
        """Names of all operations that one depends on, up to those whose values are known, and its own."""
        pending, seen = [operation], set()
        while pending:
            each = pending.pop()
            if each.name not in seen:
                seen.add(each.name)
                if self._known.get(each.name) is None:
                    pending += [tensor.op for tensor in each.inputs]
        return seen

    def _sources(self, operation: Any) -> set[str]:
        """Names of the variables that an operation depends on."""
        pending, seen, found = [operation], set(), set()
        while pending:
            each = pending.pop()
            if each.name in seen:
                continue
            seen.add(each.name)
            if each.name in self._names:
                found.add(self._names[each.name])
            pending += [tensor.op for tensor in each.inputs]
        return found


def _is_known(operation: Any, known: dict[str, Any]) -> bool:
    """Whether an operation is a function of known values alone."""
    if not operation.inputs or operation.op_def.is_stateful or operation.type == _READS:
        return False
    return all(tensor.op.name in known for tensor in operation.inputs)


def _static_value(operation: Any) -> np.ndarray | None:
    """The value of an operation on shapes that are fixed."""
    if len(operation.outputs) != 1 or not operation.outputs[0].dtype.is_integer:
        return None
    return tf.get_static_value(operation.outputs[0])
