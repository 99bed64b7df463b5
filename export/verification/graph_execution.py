"""Execution of a TensorFlow graph operation by operation, with access to each result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.python.eager import context, execute

from keras_transformer.export.graph.inlining import CALLS
from keras_transformer.export.graph.operation_results import result_offsets

if TYPE_CHECKING:
    from tensorflow.core.framework.attr_value_pb2 import AttrValue
    from tensorflow.core.framework.function_pb2 import FunctionDef
    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef

Observe = Callable[["Operation", Sequence[Any], Any], Any]

_LOOPS, _BRANCHES, _CASES = ("While", "StatelessWhile"), ("If", "StatelessIf"), ("Case", "StatelessCase")
_WITHOUT_RESULT = ("Assert", "NoOp")


class GraphExecution:
    """Runs the operations of a `GraphDef` one after another, those of its loops, branches and functions too.

    A graph that is run once costs less this way than through TensorFlow's runtime, which copies and optimizes it first.

    Args:
        graph_def: `GraphDef`.
    """

    def __init__(self, graph_def: GraphDef) -> None:
        self._functions = {each.signature.name: each for each in graph_def.library.function}
        self._bodies: dict[str, _Body] = {}
        self._nodes = {node.name: Operation(node, _main_source, "") for node in graph_def.node}
        self._observe: Observe | None = None
        self._plans: dict[tuple[str, ...], list[Operation]] = {}

    def __call__(self, tensors: Mapping[str, Any], fetches: Sequence[str], observe: Observe | None = None) -> list[Any]:
        """Computes tensors.

        Args:
            tensors: dict of the name of a node to its only result: all placeholders that the fetches depend on. A name
                `"node:index"` gives one result of another node, which is then not run.
            fetches: names of tensors, `"node:index"`.
            observe: called with each operation, its inputs and its first result; or None.

        Returns:
            List of tensors.
        """
        key = (*fetches, *sorted(tensors))
        wanted = [_main_source(name) for name in fetches]
        given: dict[str, Any] = {}
        for name, tensor in tensors.items():
            node, _, index = _main_source(name)
            given.setdefault(node, {})[index] = tensor
        if key not in self._plans:
            self._plans[key] = _ordered(self._nodes, [node for node, *_ in wanted], given)
        self._observe = observe
        return self._run(self._plans[key], given, wanted)

    def _run(self, nodes: Sequence[Operation], found: dict[str, Any], wanted: Sequence[_Source]) -> list[Any]:
        uses: dict[str, int] = {}
        for source in (*(each for node in nodes for each in node.inputs), *wanted):
            uses[source[0]] = uses.get(source[0], 0) + 1
        for node in nodes:
            inputs = [_take(found, source) for source in node.inputs]
            for name, *_ in node.inputs:
                uses[name] -= 1
                if not uses[name]:  # The memory of a result is given back with its last use.
                    del found[name]
            results = self._results(node, inputs)
            if node.name in uses:
                found[node.name] = results
        return [_take(found, source) for source in wanted]

    def _results(self, node: Operation, inputs: list[Any]) -> list[Any]:
        if node.kind in self._functions:
            return self._call(node.kind, inputs)
        if node.kind in CALLS:
            return self._call(node.functions["f"][0], inputs)
        if node.kind in _LOOPS:
            while bool(self._call(node.functions["cond"][0], inputs)[0]):
                inputs = self._call(node.functions["body"][0], inputs)
            return _Results(inputs)
        if node.kind in _BRANCHES:
            branch = "then_branch" if bool(inputs[0]) else "else_branch"
            return self._call(node.functions[branch][0], inputs[1:])
        if node.kind in _CASES:
            branches, index = node.functions["branches"], int(inputs[0])
            return self._call(branches[index if 0 <= index < len(branches) else -1], inputs[1:])
        results = [] if node.kind in _WITHOUT_RESULT else node.run(inputs)
        if self._observe is not None and results:
            self._observe(node, inputs, results[0])
        return results

    def _call(self, name: str, inputs: list[Any]) -> list[Any]:
        if name not in self._bodies:
            self._bodies[name] = _Body(self._functions[name])
        body = self._bodies[name]
        found = {key: [tensor] for key, tensor in zip(body.arguments, inputs, strict=True)}
        return _Results(self._run(body.nodes, found, body.results), body.offsets)


# The node of a tensor, the name of one of its results or None, and the index in that.
_Source = tuple[str, str | None, int]


def _main_source(name: str) -> _Source:
    """The source of an input in the main graph: `"node"` or `"node:index"`."""
    node, _, index = name.partition(":")
    return node, None, int(index or 0)


def _body_source(name: str) -> _Source:
    """The source of an input in a function: `"argument"` or `"node:result:index"`."""
    node, *rest = name.split(":")
    return (node, rest[0], int(rest[1])) if rest else (node, None, 0)


def _take(found: Mapping[str, Any], source: _Source) -> Any:
    name, part, index = source
    results = found[name]
    if part is None:
        return results[index]
    return results[results.offsets.get(part, 0) + index]


class _Results(list[Any]):
    """The results of one operation, and where each named part of them begins, if not at 0."""

    def __init__(self, results: Iterable[Any], offsets: Mapping[str, int] | None = None) -> None:
        super().__init__(results)
        self.offsets = offsets or {}


class _Body:
    """A function of the library."""

    def __init__(self, function: FunctionDef) -> None:
        name = function.signature.name
        nodes = {node.name: Operation(node, _body_source, name) for node in function.node_def}
        self.arguments = [each.name for each in function.signature.input_arg]
        self.results = [_body_source(function.ret[each.name]) for each in function.signature.output_arg]
        self.offsets = {each.name: index for index, each in enumerate(function.signature.output_arg)}
        self.nodes = _ordered(nodes, [name for name, *_ in self.results], self.arguments)


class Operation:
    """An operation, ready to be run.

    Attributes:
        name: name of its node.
        function: name of the function that it belongs to; "" for the graph itself.
        kind: such as `"MatMul"`.
        attributes: dict of name to `AttrValue`.
        functions: dict of the name of an attribute to the names of the functions in it.
    """

    def __init__(self, node: NodeDef, source: Callable[[str], _Source], function: str) -> None:
        self.name, self.kind, self.function = node.name, node.op, function
        self.inputs = [source(name) for name in node.input if not name.startswith("^")]
        self.attributes = {name: each for name, each in node.attr.items() if not name.startswith("_")}
        called = {name: _functions(each) for name, each in self.attributes.items()}
        self.functions = {name: names for name, names in called.items() if names}
        self._prepared: tuple[tuple[Any, ...], dict[str, int], int] | None = None
        self._constant = None

    def run(self, inputs: list[Any]) -> list[Any]:
        """The results for some inputs."""
        if self.kind == "Const":
            if self._constant is None:  # Most of a large graph is never run.
                self._constant = tf.constant(tf.make_ndarray(self.attributes["value"].tensor))
            return _Results([self._constant])
        if self._prepared is None:
            offsets, count = result_offsets(self.kind, self.attributes)
            pairs = ((name, _value(each)) for name, each in self.attributes.items())
            self._prepared = tuple(part for pair in pairs for part in pair), offsets, count
        attributes, offsets, count = self._prepared
        return _Results(execute.execute(self.kind.encode(), count, inputs, attributes, context.context()), offsets)


def _functions(attribute: AttrValue) -> list[str]:
    if attribute.WhichOneof("value") == "func":
        return [attribute.func.name]
    return [each.name for each in attribute.list.func]


def _value(attribute: AttrValue) -> Any:
    """An attribute as the eager runtime takes it."""
    kind = attribute.WhichOneof("value")
    if kind == "shape":
        return None if attribute.shape.unknown_rank else tf.TensorShape(attribute.shape).as_list()
    if kind == "list":
        for part in ("s", "i", "f", "b", "type"):
            if getattr(attribute.list, part):
                return list(getattr(attribute.list, part))
        return [None if each.unknown_rank else tf.TensorShape(each).as_list() for each in attribute.list.shape]
    if kind in ("s", "i", "f", "b", "type"):
        return getattr(attribute, kind)
    raise NotImplementedError(f"an attribute of the kind '{kind}'")


def _ordered(nodes: Mapping[str, Operation], wanted: Iterable[str], given: Iterable[str]) -> list[Operation]:
    """The nodes that some need, each after those that it reads."""
    order: list[Operation] = []
    done = set(given)
    stack = [(name, False) for name in reversed(list(wanted))]
    while stack:
        name, is_ready = stack.pop()
        if is_ready:
            if name not in done:
                done.add(name)
                order.append(nodes[name])
        elif name not in done:
            stack.append((name, True))
            stack += [(source, False) for source, *_ in reversed(nodes[name].inputs) if source not in done]
    return order
