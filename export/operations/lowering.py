"""A traced graph for a format: operations that the format lacks are replaced by functions of operations that it has."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
import tensorflow as tf

from keras_transformer.export.errors import ExportError, UnsupportedOpError
from keras_transformer.export.graph.function import GraphFunction
from keras_transformer.export.graph.inlining import RESULT, inlined
from keras_transformer.export.graph.operation_results import result_part
from keras_transformer.export.graph.part import GraphPart, Node, constant
from keras_transformer.export.graph.repeated_layers import MARK as REPEATED
from keras_transformer.export.graph.repeated_layers import WEIGHT
from keras_transformer.export.graph.traced_graph import with_numbered_functions, with_own_functions
from keras_transformer.export.operations.operation import Decomposed, Lowering, Native, Refused
from keras_transformer.export.operations.table import lowerings_in
from keras_transformer.utils.types import Tensor

if TYPE_CHECKING:
    from tensorflow.core.framework.attr_value_pb2 import AttrValue
    from tensorflow.core.framework.function_pb2 import FunctionDef
    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef
    from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction

    from keras_transformer.export.graph.traced_graph import TracedGraph

# In the name of every function that takes the place of an operation, until it is inlined.
_MARK = "decomposed_operation"
# Constants of at most as many elements are known to functions while they are traced.
_KNOWN_SIZE = 1024
_MOST_NESTED = 8
_CALL = "PartitionedCall"


def lowered(
    graph: TracedGraph, format: str, locate: Callable[[str, str], str], is_outlined: bool = False
) -> TracedGraph:
    """Returns a traced graph of operations that a format has, as far as the table of operations says how.

    Args:
        graph: `TracedGraph`; returned as it is where no operation is to be replaced.
        format: name of the format.
        locate: the layer that an operation came from, of the name of the operation and that of the node.
        is_outlined: bool. Whether repeated layers stay functions. Several operations that are replaced together are found
            within a layer only then.

    Raises:
        UnsupportedOpError: the table refuses an operation in this format.
    """
    source = graph.outlined if is_outlined else graph.graph_def
    results = list(graph.outputs.values())
    _check_refused(source, results, graph.weights, format, locate)
    found = _Lowering(lowerings_in(format)).applied(source, results, graph.weights)
    if found is source:
        return graph
    return dataclasses.replace(graph, graph_def=inlined(found), outlined=found)


def _check_refused(
    graph_def: GraphDef, results: Sequence[str], weights: Iterable[str], format: str, locate: Callable[[str, str], str]
) -> None:
    """Raises for the operations that the table refuses."""
    lowerings = lowerings_in(format)
    found: dict[tuple[str, str], Refused] = {}
    for _, part in _parts(graph_def, results, weights):
        for node in part:
            chosen = _chosen(lowerings.get(node.op, ()), node)
            if isinstance(chosen, Refused):
                found[node.op, locate(node.op, node.message.name)] = chosen
    if found:
        (op, layer), *others = found
        refused = found[op, layer]
        raise UnsupportedOpError(format, op, layer, others, f"{refused.reason}; {refused.remedy}")


def _parts(graph_def: GraphDef, results: Sequence[str], weights: Iterable[str]) -> Iterator[tuple[str, GraphPart]]:
    """The graph, under the name "", and its functions by name."""
    yield "", GraphPart(graph_def.node, results, weights=weights)
    for each in graph_def.library.function:
        is_repeated = REPEATED in each.signature.name
        names = [argument.name for argument in each.signature.input_arg]
        own = [name for name in names if is_repeated and name.startswith(WEIGHT)]
        yield each.signature.name, GraphPart.of_function(each, own)


def _chosen(lowerings: Sequence[Lowering], node: Node) -> Lowering | None:
    """The first lowering that applies to a node."""
    return next((each for each in lowerings if isinstance(each, Native) or each.when(node)), None)


class _Lowering:
    """Replaces the operations of graphs.

    Args:
        lowerings: dict of the name of an operation to its lowerings, in the order of precedence.
        depth: how many graphs of decompositions this one is within.
    """

    def __init__(self, lowerings: Mapping[str, Sequence[Lowering]], depth: int = 0) -> None:
        self._lowerings, self._depth = lowerings, depth
        self._functions: dict[Hashable, _Function] = {}

    def applied(self, graph_def: GraphDef, results: Sequence[str], weights: Iterable[str] = ()) -> GraphDef:
        """A copy of a `GraphDef` in which operations are replaced; the same one if there are none to replace.

        Args:
            graph_def: `GraphDef`.
            results: the tensors that it computes, `"node:index"`.
            weights: names of the placeholders of weights.
        """
        calls = {key: self._calls(part) for key, part in _parts(graph_def, results, weights)}
        if not any(calls.values()):
            return graph_def
        copy: GraphDef = tf.compat.v1.GraphDef()
        copy.CopyFrom(graph_def)
        _replace(copy.node, calls[""])
        for each in copy.library.function:
            names = _replace(each.node_def, calls[each.signature.name])
            _rename(each, names)
        for function in self._functions.values():
            copy.library.function.extend(function.messages)
        return inlined(copy, _MARK)

    def _calls(self, part: GraphPart) -> dict[str, _Call]:
        """The calls that take the place of nodes, by the name of the node."""
        found: dict[str, _Call] = {}
        for node in part:
            chosen = _chosen(self._lowerings.get(node.op, ()), node)
            if isinstance(chosen, Decomposed):
                found[node.message.name] = self._call(chosen, node)
        return found

    def _call(self, lowering: Decomposed, node: Node) -> _Call:
        operands = list(lowering.operands(node))
        values = [_known(node.part.node(each)) for each in operands]
        given = [each for each, value in zip(operands, values, strict=True) if value is None]
        specs = [node.part.spec(each) for each in given]
        attributes = {name: node.attribute(name) for name in lowering.attributes}
        key = (lowering, node.op, *map(_spec_key, specs), *map(_value_key, values), repr(attributes))
        if key not in self._functions:
            function, name = (
                _traced(lowering, values, specs, attributes),
                f"{self._depth}_{len(self._functions)}_{node.op}",
            )
            self._functions[key] = _Function.of(name, function, self._nested(node.op))
        return _Call(self._functions[key], given)

    def _nested(self, operation: str) -> _Lowering:
        """What replaces the operations of the decomposition of an operation."""
        if self._depth == _MOST_NESTED:
            raise ExportError(f"the function in place of {operation} contains the operation itself")
        return _Lowering(self._lowerings, self._depth + 1)


def _replace(nodes: Iterable[NodeDef], calls: Mapping[str, _Call]) -> dict[str, str]:
    """Puts calls in the place of nodes, by name; returns what their results are called now in a function."""
    names: dict[str, str] = {}
    for node in nodes:
        if node.name in calls:
            count = len(calls[node.name].function.types[1])
            for number in range(count):
                names[f"{node.name}:{result_part(node.op, node.attr, number)}"] = f"{node.name}:output:{number}"
            calls[node.name].take_place(node)
    return names


def _rename(function: FunctionDef, names: Mapping[str, str]) -> None:
    """Lets what reads a tensor of a `FunctionDef` read another name of it."""
    if names:
        for node in function.node_def:
            node.input[:] = [names.get(each, each) for each in node.input]
        for key, source in function.ret.items():
            function.ret[key] = names.get(source, source)


def _known(node: Node | None) -> np.ndarray | None:
    """The value of a small constant."""
    value = constant(node)
    return value if value is not None and value.size <= _KNOWN_SIZE else None


def _spec_key(spec: tf.TensorSpec) -> str:
    return f"{spec.shape} {spec.dtype}"


def _value_key(value: np.ndarray | None) -> Hashable:
    return (
        None
        if value is None
        else (value.shape, value.dtype.str, value.tobytes() if value.dtype != object else repr(value))
    )


def _traced(
    lowering: Decomposed,
    values: Sequence[np.ndarray | None],
    specs: Sequence[tf.TensorSpec],
    attributes: Mapping[str, Any],
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
class _Function:
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
    def of(cls, name: str, function: ConcreteFunction, lowering: _Lowering) -> _Function:
        """The function of a decomposition.

        Args:
            name: its name, without the mark.
            function: its concrete function.
            lowering: what replaces its operations.
        """
        results = [each.name for each in function.outputs]
        graph_def = with_numbered_functions(function.graph.as_graph_def(add_shapes=True))
        graph_def = with_own_functions(lowering.applied(graph_def, results), name)
        message: FunctionDef = tf.compat.v1.GraphDef().library.function.add()
        GraphFunction(graph_def, [each.op.name for each in function.inputs]).fill(message, f"{_MARK}_{name}", results)
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
    _rename(function, sources)
    function.node_def.remove(identity)


@dataclasses.dataclass(frozen=True)
class _Call:
    """A call in place of a node: its function and what that takes."""

    function: _Function
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
