"""Functions in place of their calls: the graph of a signature without the functions of repeated layers, say."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING

import tensorflow as tf

from keras_transformer.export.graph.native_functions import MARK as NATIVE
from keras_transformer.export.graph.operation_results import result_offsets
from keras_transformer.export.graph.repeated_layers import MARK

if TYPE_CHECKING:
    from google.protobuf.internal.containers import RepeatedCompositeFieldContainer
    from tensorflow.core.framework.function_pb2 import FunctionDef
    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef

# Operations that call a function.
CALLS = ("PartitionedCall", "StatefulPartitionedCall")
# Name of the operation of a function that has the name of the call where it takes its place.
RESULT = "named_like_its_call"


def is_repeated(node: NodeDef, mark: str = MARK) -> bool:
    """Whether a `NodeDef` is a call of a repeated layer, or of another function with a mark in its name."""
    return node.op in CALLS and mark in node.attr["f"].func.name


def is_layer(node: NodeDef) -> bool:
    """Whether a `NodeDef` is a call of a repeated layer or of a native one."""
    return is_repeated(node) or is_repeated(node, NATIVE)


def result_names(call: str, number: int) -> tuple[str, ...]:
    """The names by which graphs and functions read one result of a call."""
    return (f"{call}:{number}", f"{call}:output:{number}", *([call] if not number else []))


def inlined(graph_def: GraphDef, mark: str = MARK) -> GraphDef:
    """Returns a copy of a `GraphDef` in which the operations of some functions are in place of their calls.

    Args:
        graph_def: `GraphDef`. Its other functions stay.
        mark: what the names of these functions contain; that of repeated layers by default. They have no state.
    """
    found: GraphDef = tf.compat.v1.GraphDef(versions=graph_def.versions)
    functions = {each.signature.name: each for each in graph_def.library.function}
    _Inliner(found.node, functions, _main_results, mark).add(graph_def.node)
    for each in graph_def.library.function:
        if mark not in each.signature.name:
            _add_function(found.library.function.add(), each, functions, mark)
    return found


def without_layers(graph_def: GraphDef) -> GraphDef:
    """Returns a copy of a `GraphDef` in which no layer is a function: neither one that repeats nor a native one."""
    if any(NATIVE in each.signature.name for each in graph_def.library.function):
        graph_def = inlined(graph_def, NATIVE)  # A layer that repeats may contain some.
    return inlined(graph_def)


def _add_function(copy: FunctionDef, function: FunctionDef, functions: Mapping[str, FunctionDef], mark: str) -> None:
    copy.CopyFrom(function)
    del copy.node_def[:]
    inliner = _Inliner(copy.node_def, functions, _body_results, mark)
    inliner.add(function.node_def)
    for name, source in copy.ret.items():
        copy.ret[name] = inliner.source(source)


def _main_results(name: str, number: int, part: str) -> str:
    """One result of an operation of a graph, by number."""
    return f"{name}:{number}" if number else name


def _body_results(name: str, number: int, part: str) -> str:
    """One result of an operation of a function, by part."""
    return f"{name}:{part}"


class _Inliner:
    """Copies operations, those of marked functions in place of their calls.

    Args:
        nodes: the repeated field of `NodeDef`s to fill.
        functions: dict of name to `FunctionDef`.
        result: how the graph names a result, of its operation, its number, and its part and number in that.
        mark: what the names of the functions contain whose calls are replaced.
    """

    def __init__(
        self,
        nodes: RepeatedCompositeFieldContainer[NodeDef],
        functions: Mapping[str, FunctionDef],
        result: Callable[[str, int, str], str],
        mark: str = MARK,
    ) -> None:
        self._nodes, self._functions, self._result, self._mark = nodes, functions, result, mark
        self._sources: dict[str, str] = {}  # Results of calls, and what computes them now.

    def source(self, name: str) -> str:
        """What an input is called now."""
        while name in self._sources:  # A layer may return what another one has computed.
            name = self._sources[name]
        return name

    def add(self, nodes: Iterable[NodeDef]) -> None:
        """Copies the operations of a graph."""
        nodes = list(nodes)
        taken = {node.name for node in nodes}
        calls = {
            node.name: _Body(self._functions, node, self._result, taken)
            for node in nodes
            if is_repeated(node, self._mark)
        }
        for name, body in calls.items():
            for number, result in enumerate(body.results):
                # An operation that is named like its call is read by its own name.
                self._sources.update({each: result for each in result_names(name, number) if each != result})
        for node in nodes:
            if node.name in calls:
                self.add_body(calls[node.name])
            else:
                inputs = [each for each in node.input if not (each[0] == "^" and each[1:] in calls)]
                self._copy(node, node.name, map(self.source, inputs))

    def add_body(self, body: _Body) -> None:
        """Copies the operations of a function. It changes no state, so that none waits for another."""
        for node in body.function.node_def:
            # Results within the function may have the names that those of the call had: the operation is named like it.
            sources = [(each, body.source(each)) for each in node.input if not each.startswith("^")]
            inputs = [self.source(source) if body.is_argument(each) else source for each, source in sources]
            self._copy(node, body.name_of(node.name), inputs)

    def _copy(self, node: NodeDef, name: str, inputs: Iterable[str]) -> None:
        copy = self._nodes.add()
        copy.CopyFrom(node)
        copy.name = name
        copy.input[:] = inputs


class _Body:
    """The function of a repeated layer, as one of its calls.

    Args:
        functions: dict of name to `FunctionDef`.
        call: the `NodeDef`.
        result: how the graph names a result.
        taken: names that other operations of the graph have.
    """

    def __init__(
        self,
        functions: Mapping[str, FunctionDef],
        call: NodeDef,
        result: Callable[[str, int, str], str],
        taken: Collection[str] = (),
    ) -> None:
        self.function, self.scope, self._result = functions[call.attr["f"].func.name], call.name, result
        self._taken = taken
        names = [each.name for each in self.function.signature.input_arg]
        self._arguments = dict(zip(names, (each for each in call.input if not each.startswith("^")), strict=True))
        self._nodes = {node.name: node for node in self.function.node_def}

    @property
    def results(self) -> list[str]:
        """What the results are called in the graph."""
        return [self.source(self.function.ret[each.name]) for each in self.function.signature.output_arg]

    def source(self, name: str) -> str:
        """What a tensor of the function is called in the graph."""
        if name in self._arguments:
            return self._arguments[name]
        node, part, index = name.split(":")
        offsets, _ = result_offsets(self._nodes[node].op, self._nodes[node].attr)
        return self._result(self.name_of(node), offsets[part] + int(index), f"{part}:{index}")

    def is_argument(self, name: str) -> bool:
        """Whether a tensor of the function is one of its arguments."""
        return name in self._arguments

    def name_of(self, node: str) -> str:
        """What an operation of the function is called in the graph."""
        if node == RESULT:
            return self.scope
        name = f"{self.scope}/{node}"
        while name in self._taken:
            name += "_"  # No name that TensorFlow gives ends like this.
        return name


def opened(function: FunctionDef, library: Iterable[FunctionDef]) -> tuple[GraphDef, list[str]]:
    """The function of a repeated layer as a graph.

    Args:
        function: `FunctionDef`.
        library: the `FunctionDef`s of the graph that it belongs to.

    Returns:
        `(graph_def, results)`: a `GraphDef` whose placeholders have the names of the arguments, and the names of the
        operations that compute the results.
    """
    graph_def: GraphDef = tf.compat.v1.GraphDef()
    for each in library:
        if MARK not in each.signature.name:
            graph_def.library.function.add().CopyFrom(each)
    call: NodeDef = tf.compat.v1.NodeDef(name=MARK)
    for number, argument in enumerate(function.signature.input_arg):
        call.input.append(argument.name)
        placeholder = graph_def.node.add(name=argument.name, op="Placeholder")
        placeholder.attr["dtype"].type = argument.type
        (shape,) = function.arg_attr[number].attr["_output_shapes"].list.shape
        placeholder.attr["shape"].shape.CopyFrom(shape)
        placeholder.attr["_output_shapes"].list.shape.add().CopyFrom(shape)
    call.attr["f"].func.name = function.signature.name
    body = _Body({function.signature.name: function}, call, _main_results)
    _Inliner(graph_def.node, {}, _main_results).add_body(body)
    results: list[str] = []
    for number, (source, output) in enumerate(zip(body.results, function.signature.output_arg, strict=True)):
        results.append(graph_def.node.add(name=f"result_{number}", op="Identity", input=[source]).name)
        graph_def.node[-1].attr["T"].type = output.type
    return graph_def, results
