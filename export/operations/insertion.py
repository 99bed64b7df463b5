"""Functions in place of operations: traced, made messages, and called where the operations were."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeGuard

import numpy as np
import tensorflow as tf

from keras_transformer.export.graph.function import GraphFunction
from keras_transformer.export.graph.inlining import RESULT
from keras_transformer.export.graph.operation_results import result_part
from keras_transformer.export.graph.part import Node, constant
from keras_transformer.export.graph.traced_graph import with_numbered_functions, with_own_functions
from keras_transformer.export.operations.operation import Attributes, Decomposed
from keras_transformer.utils.types import Tensor

if TYPE_CHECKING:
    from tensorflow.core.framework.attr_value_pb2 import AttrValue
    from tensorflow.core.framework.function_pb2 import FunctionDef
    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef
    from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction

# In the name of every function that takes the place of an operation, until it is inlined.
INSERTED = "decomposed_operation"
# Constants of at most as many elements are known to functions while they are traced.
_KNOWN_SIZE = 1024
_CALL = "PartitionedCall"


def replace(nodes: Iterable[NodeDef], calls: Mapping[str, Call]) -> dict[str, str]:
    """Puts calls in the place of nodes, by name; returns what their results are called now in a function."""
    names: dict[str, str] = {}
    for node in nodes:
        if node.name in calls:
            count = len(calls[node.name].function.types[1])
            for number in range(count):
                names[f"{node.name}:{result_part(node.op, node.attr, number)}"] = f"{node.name}:output:{number}"
            calls[node.name].take_place(node)
    return names


def rename(function: FunctionDef, names: Mapping[str, str]) -> None:
    """Lets what reads a tensor of a `FunctionDef` read another name of it."""
    if names:
        for node in function.node_def:
            node.input[:] = [names.get(each, each) for each in node.input]
        for key, source in function.ret.items():
            function.ret[key] = names.get(source, source)


def known(node: Node | None) -> np.ndarray | None:
    """The value of a small constant."""
    value = constant(node)
    return value if value is not None and value.size <= _KNOWN_SIZE else None


def spec_key(spec: tf.TensorSpec) -> str:
    """What tells two shapes and types apart."""
    return f"{spec.shape} {spec.dtype}"


def value_key(value: np.ndarray | None) -> Hashable:
    """What tells two known constants apart."""
    if value is None:
        return None
    return value.shape, value.dtype.str, repr(value) if value.dtype == object else value.tobytes()


def traced(
    lowering: Decomposed,
    values: Sequence[np.ndarray | None],
    specs: Sequence[tf.TensorSpec],
    attributes: Attributes,
) -> ConcreteFunction:
    """The concrete function of a decomposition, of those operands that are no known constants."""

    def decomposed(*tensors: Tensor) -> list[Tensor]:
        given = iter(tensors)
        operands = [next(given) if value is None else tf.constant(value) for value in values]
        results = lowering.function(*operands, **attributes)
        return list(results) if _is_sequence(results) else [results]

    return tf.function(decomposed, autograph=False).get_concrete_function(*specs)


def _is_sequence(results: Tensor) -> TypeGuard[Sequence[Tensor]]:
    return isinstance(results, (list, tuple))


@dataclasses.dataclass(frozen=True)
class InsertedFunction:
    """The function that takes the place of an operation.

    Args:
        name: its name.
        types: the types of its arguments, and those of its results.
        messages: its `FunctionDef`, and those of the functions that it uses.
    """

    name: str
    types: tuple[list[int], list[int]]
    messages: list[FunctionDef]

    @classmethod
    def of(
        cls, name: str, function: ConcreteFunction, applied: Callable[[GraphDef, Sequence[str]], GraphDef]
    ) -> InsertedFunction:
        """The function of a decomposition.

        Args:
            name: its name, without the mark.
            function: its concrete function.
            applied: replaces the operations in its graph, which computes some tensors.
        """
        results = [each.name for each in function.outputs]
        graph_def = with_numbered_functions(function.graph.as_graph_def(add_shapes=True))
        graph_def = with_own_functions(applied(graph_def, results), name)
        message: FunctionDef = tf.compat.v1.GraphDef().library.function.add()
        GraphFunction(graph_def, [each.op.name for each in function.inputs]).fill(
            message, f"{INSERTED}_{name}", results
        )
        _name_result(message)
        given, made = ([each.dtype.as_datatype_enum for each in side] for side in (function.inputs, function.outputs))
        return cls(message.signature.name, (given, made), [message, *graph_def.library.function])


def _name_result(function: FunctionDef) -> None:
    """Lets the operation that computes the first result of a `FunctionDef` have the name of what it takes the place of."""
    nodes = {node.name: node for node in function.node_def}
    first = function.signature.output_arg[0].name
    identity = nodes[function.ret[first].split(":")[0]]
    computing = nodes.get(identity.input[0].split(":")[0])
    if computing is None:  # It is an argument.
        identity.name = RESULT
        function.ret[first] = f"{RESULT}:output:0"
        return
    name = computing.name
    sources = {
        each: RESULT + each.removeprefix(name)
        for node in nodes.values()
        for each in node.input
        if each.split(":")[0] == name
    }
    function.ret[first] = sources[identity.input[0]]
    computing.name = RESULT
    rename(function, sources)
    function.node_def.remove(identity)


@dataclasses.dataclass(frozen=True)
class Call:
    """A call in place of a node: its function and what that takes."""

    function: InsertedFunction
    operands: list[str]

    def take_place(self, node: NodeDef) -> None:
        """Makes a `NodeDef` the call."""
        shapes: AttrValue = tf.compat.v1.AttrValue()
        if "_output_shapes" in node.attr:
            shapes.CopyFrom(node.attr["_output_shapes"])
        node.op = _CALL
        node.input[:] = self.operands
        node.attr.clear()
        node.attr["f"].func.name = self.function.name
        given, made = self.function.types
        node.attr["Tin"].list.type.extend(given)
        node.attr["Tout"].list.type.extend(made)
        node.attr["_output_shapes"].CopyFrom(shapes)
