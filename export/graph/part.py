"""The nodes of a traced graph, or of one of its functions, with what is known of their tensors."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from keras_transformer.export.graph.operation_results import result_offsets, result_types

if TYPE_CHECKING:
    from tensorflow.core.framework.attr_value_pb2 import AttrValue
    from tensorflow.core.framework.function_pb2 import FunctionDef
    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef

_WEIGHT_READS = ("Const", "ReadVariableOp")
# Operations of weights and constants only, whose results count as weights.
_OF_WEIGHTS = (*_WEIGHT_READS, "AddV2", "Cast", "ExpandDims", "Identity", "Reshape")


class GraphPart:
    """A graph or a function.

    Args:
        nodes: its `NodeDef`s.
        results: the tensors that it returns.
        arguments: dict of the name of an argument to its `tf.TensorSpec`; none for a graph, which has placeholders.
        weights: names of the placeholders and arguments that are weights.
    """

    def __init__(
        self,
        nodes: Iterable[NodeDef],
        results: Iterable[str],
        arguments: Mapping[str, tf.TensorSpec] | None = None,
        weights: Iterable[str] = (),
    ) -> None:
        self._nodes = {node.name: node for node in nodes}
        self._arguments, self._weights = dict(arguments or {}), frozenset(weights)
        self._results = tuple(results)
        self._found_readers: dict[str, list[str]] | None = None

    @classmethod
    def of_function(cls, function: FunctionDef, weights: Iterable[str] = ()) -> GraphPart:
        """The part that is a `FunctionDef`."""
        arguments: dict[str, tf.TensorSpec] = {}
        for number, each in enumerate(function.signature.input_arg):
            shapes = function.arg_attr[number].attr["_output_shapes"].list.shape if number in function.arg_attr else ()
            arguments[each.name] = tf.TensorSpec(tf.TensorShape(shapes[0] if shapes else None), tf.as_dtype(each.type))
        return cls(function.node_def, function.ret.values(), arguments, weights)

    def __iter__(self) -> Iterator[Node]:
        return (Node(self, each) for each in self._nodes.values())

    def node(self, source: str) -> Node | None:
        """The node that computes a tensor; None for an argument of a function."""
        found = self._nodes.get(node_name(source))
        return None if found is None else Node(self, found)

    def readers(self, name: str) -> Sequence[str]:
        """The names of the operations that read results of a node, one for each read; "" where the part returns it."""
        if self._found_readers is None:
            self._found_readers = collections.defaultdict(list)
            for node in self._nodes.values():
                for source in node.input:
                    if not source.startswith("^"):
                        self._found_readers[node_name(source)].append(node.op)
            for source in self._results:
                self._found_readers[node_name(source)].append("")
        return self._found_readers.get(name, ())

    def spec(self, source: str) -> tf.TensorSpec:
        """The shape and the type of a tensor."""
        node = self._nodes.get(node_name(source))
        if node is None:
            return self._arguments[source]
        number = _number(node, source)
        shapes = node.attr["_output_shapes"].list.shape if "_output_shapes" in node.attr else ()
        shape = tf.TensorShape(shapes[number] if number < len(shapes) else None)
        return tf.TensorSpec(shape, tf.as_dtype(result_types(node.op, node.attr)[number]))

    def is_weight(self, source: str) -> bool:
        """Whether a tensor is computed from weights and constants only."""
        if node_name(source) in self._weights:
            return True
        node = self._nodes.get(node_name(source))
        if node is None or node.op not in _OF_WEIGHTS:
            return False
        return node.op in _WEIGHT_READS or all(map(self.is_weight, node.input))


@dataclasses.dataclass(frozen=True)
class Node:
    """One operation of a graph, as the conditions and operands of lowerings see it.

    Args:
        part: the `GraphPart`.
        message: its `NodeDef`.
    """

    part: GraphPart
    message: NodeDef

    @property
    def op(self) -> str:
        """Name of the operation."""
        return self.message.op

    @property
    def inputs(self) -> Sequence[str]:
        """Names of the tensors that it reads."""
        return [each for each in self.message.input if not each.startswith("^")]

    @property
    def readers(self) -> Sequence[str]:
        """The names of the operations that read its results, one for each read; "" where the graph returns one."""
        return self.part.readers(self.message.name)

    def producer(self, position: int) -> Node | None:
        """The operation that computes one of its inputs; None for an argument of a function."""
        return self.part.node(self.inputs[position])

    def dtype(self, position: int = 0) -> tf.DType:
        """The type of one of its inputs."""
        return self.part.spec(self.inputs[position]).dtype

    def value(self, position: int) -> np.ndarray | None:
        """The value of one of its inputs, if that is a constant."""
        return constant(self.producer(position))

    def attribute(self, name: str) -> Any:
        """The value of an attribute: a number, a text, a type, or a list; None if the node does not have it."""
        return _python_value(self.message.attr[name]) if name in self.message.attr else None


def constant(node: Node | None) -> np.ndarray | None:
    """The value of a node that is a constant; None for another one."""
    return None if node is None else constant_value(node.message)


def constant_value(node: NodeDef | None) -> np.ndarray | None:
    """The value of a `NodeDef` that is a constant; None for another one."""
    return tf.make_ndarray(node.attr["value"].tensor) if node is not None and node.op == "Const" else None


def node_name(source: str) -> str:
    """The name of the node that computes a tensor, or that an operation waits for.

    Example:

    >>> node_name("layer/Split:1"), node_name("^layer/Assert")
    ('layer/Split', 'layer/Assert')
    """
    return source.lstrip("^").split(":")[0]


def every_node(graph_def: GraphDef) -> Iterator[NodeDef]:
    """The nodes of a `GraphDef`, then those of each of its functions."""
    yield from graph_def.node
    for each in graph_def.library.function:
        yield from each.node_def


def _number(node: NodeDef, source: str) -> int:
    """The number of a result among those of its node; `"node:1"` in a graph, `"node:part:1"` in a function."""
    _, *parts = source.split(":")
    if len(parts) < 2:
        return int(parts[0]) if parts else 0
    return result_offsets(node.op, node.attr)[0][parts[0]] + int(parts[1])


def _python_value(attribute: AttrValue) -> Any:
    kind = attribute.WhichOneof("value")
    if kind is None:
        return None
    if kind == "list":
        filled: Iterable[Any] = next(
            (getattr(attribute.list, each.name) for each, _ in attribute.list.ListFields()), ()
        )
        return [each.decode() if isinstance(each, bytes) else each for each in filled]
    value = getattr(attribute, kind)
    if kind == "type":
        return tf.as_dtype(value)
    return value.decode() if kind == "s" else value
