"""What a traced signature reads, and what it computes from its weights and constants alone.

Converters evaluate such expressions (a table of positions, the factor of a batch normalization) and store the result.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from keras_transformer.export.graph.traced_graph import TracedGraph
from keras_transformer.export.verification.graph_execution import GraphExecution

if TYPE_CHECKING:
    from tensorflow.core.framework.node_def_pb2 import NodeDef

# The values of their inputs do not matter.
_OF_SHAPES = frozenset(["Shape", "ShapeN", "Size", "Rank", "ZerosLike", "OnesLike"])
_READS = "ReadVariableOp"
_LAYOUT = frozenset([_READS, "Identity", "Reshape", "Transpose", "ExpandDims", "Squeeze", "Cast", "Placeholder"])
_INPUTS = ("Placeholder", "PlaceholderWithDefault")
# Tensors that are computed at a time.
_FETCHES = 100
_FLOATS = frozenset(tf.as_dtype(name).as_datatype_enum for name in ("float16", "bfloat16", "float32", "float64"))


class TracedConstants:
    """The constant part of one signature.

    Args:
        graph: `TracedGraph`.
        weights: dict of the name of a node to the `tf.Variable` that it reads.
        names: dict of the id of a `tf.Variable` to the name of the variable.
    """

    def __init__(self, graph: TracedGraph, weights: Mapping[str, Any], names: Mapping[int, str]) -> None:
        self._graph = graph
        self._nodes = {node.name: node for node in graph.graph_def.node}
        handles = {id(each.handle): each for each in graph.variables}
        self._handles = {node: handles[id(outer)] for node, outer in graph.captures.items() if id(outer) in handles}
        self._weights = dict(weights)
        self._names: dict[str, str] = {
            node: names.get(id(each)) or str(each.name) for node, each in {**self._handles, **self._weights}.items()
        }

    @functools.cached_property
    def read(self) -> set[str]:
        """Names of the variables that an output depends on."""
        outputs = [name.split(":")[0] for name in self._graph.outputs.values()]
        seen = self._ancestors(outputs, lambda name: self._nodes[name].op in _OF_SHAPES)
        return {self._names[each] for each in seen if each in self._names}

    @functools.cached_property
    def readers(self) -> dict[str, set[str]]:
        """For each variable the names of the operations between it and, inclusive, the first ones with other inputs."""
        users: dict[str, set[str]] = {}
        for node in self._graph.graph_def.node:
            for source in _sources(node):
                users.setdefault(source, set()).add(node.name)
        found: dict[str, set[str]] = {}
        for place, name in self._names.items():
            pending, seen = [place], found.setdefault(name, set())
            while pending:
                for each in users.get(pending.pop(), ()):
                    if each not in seen:
                        seen.add(each)
                        if each in self._known:
                            pending.append(each)
        return found

    @functools.cached_property
    def computed_with(self) -> set[str]:
        """Names of the variables from which further constants are computed, or that a loop or a branch reads."""
        found: set[str] = set()
        for name, operations in self.readers.items():
            for each in operations:
                node = self._nodes[each]
                is_computed = each in self._known and node.op not in _LAYOUT
                if is_computed or any(attribute.HasField("func") for attribute in node.attr.values()):
                    found.add(name)
        return found

    @functools.cached_property
    def _known(self) -> dict[str, Any]:
        """Operations that depend on no input, by name: None, or the variable that one reads, or its value."""
        known: dict[str, Any] = {**dict.fromkeys(self._handles), **self._weights}
        for node in self._graph.graph_def.node:  # In an order in which they can be run.
            if node.op in _INPUTS or node.name in known:
                continue
            if node.op == _READS and _sources(node)[0] in self._handles:
                known[node.name] = self._handles[_sources(node)[0]]
            elif node.op == "Const" or _is_known(node, known):
                known[node.name] = None
            elif (value := self._size(node)) is not None:
                known[node.name] = value
        return known

    def _size(self, node: NodeDef) -> np.ndarray | None:
        """The value of an operation on the shape of a tensor, if that is fixed."""
        shape = None
        if node.op in ("Shape", "Size", "Rank"):
            source, _, index = node.input[0].partition(":")
            shape = self._shape(source, int(index or 0))
        if shape is None or (-1 in shape and node.op != "Rank"):
            return None
        dtype = tf.as_dtype(node.attr["out_type"].type or tf.int32).as_numpy_dtype
        value = {"Shape": shape, "Size": math.prod(shape), "Rank": len(shape)}[node.op]
        return np.array(value, dtype)

    def _shape(self, name: str, index: int = 0) -> list[int] | None:
        """The shape of a result, with -1 for unknown sizes; None for an unknown one."""
        shapes = self._nodes[name].attr["_output_shapes"].list.shape
        if index >= len(shapes) or shapes[index].unknown_rank:
            return None
        return [each.size for each in shapes[index].dim]

    def values(self, sizes: set[int]) -> Iterator[tuple[set[str], np.ndarray]]:
        """Yields constant tensors of floats.

        Args:
            sizes: their numbers of elements.

        Yields:
            `(names, array)`: the variables that it depends on, and the values.
        """
        fetches = [name for name, value in self._known.items() if value is None and self._may_have(name, sizes)]
        for start in range(0, len(fetches), _FETCHES):
            part = fetches[start : start + _FETCHES]
            results = self._execution(self._given(part), [f"{name}:0" for name in part])
            for name, result in zip(part, results, strict=True):
                if result.dtype.is_floating and math.prod(result.shape.as_list()) in sizes:
                    yield self._variables_of(name), result.numpy()

    def _may_have(self, name: str, sizes: set[int]) -> bool:
        """Whether an operation may compute floats of one of some sizes."""
        node, shape = self._nodes[name], self._shape(name)
        if name in self._handles or _result_type(node) not in _FLOATS:
            return False
        return shape is None or -1 in shape or math.prod(shape) in sizes

    @functools.cached_property
    def scalars(self) -> set[float]:
        """All constant numbers."""
        found = {float(array.reshape(())) for _, array in self.values({1})}
        for function in self._graph.graph_def.library.function:
            for node in function.node_def:
                if node.op == "Const" and node.attr["dtype"].type == tf.float32.as_datatype_enum:
                    array = tf.make_ndarray(node.attr["value"].tensor)
                    found |= {float(array.reshape(()))} if array.size == 1 else set()
        return found

    @functools.cached_property
    def _execution(self) -> GraphExecution:
        return GraphExecution(self._graph.graph_def)

    def _given(self, names: Iterable[str]) -> dict[str, Any]:
        """The values of the variables and other known values that some operations depend on."""
        needed = self._ancestors(names, lambda name: self._known.get(name) is not None)
        values = {name: self._known[name] for name in needed if self._known.get(name) is not None}
        return {
            name: each.read_value() if hasattr(each, "read_value") else tf.constant(each)
            for name, each in values.items()
        }

    def _variables_of(self, name: str) -> set[str]:
        """Names of the variables that an operation depends on."""
        return {self._names[each] for each in self._ancestors([name], lambda _: False) if each in self._names}

    def _ancestors(self, names: Iterable[str], is_end: Callable[[str], bool]) -> set[str]:
        """Names of all operations that some depend on, and their own, up to those of which `is_end` is true."""
        seen: set[str] = set()
        pending = [*names]
        while pending:
            name = pending.pop()
            if name not in seen:
                seen.add(name)
                if not is_end(name):
                    pending += _sources(self._nodes[name])
        return seen


def _sources(node: NodeDef) -> list[str]:
    """Names of the nodes that a node reads."""
    return [name.partition(":")[0] for name in node.input if not name.startswith("^")]


def _result_type(node: NodeDef) -> int:
    """The type of the first result."""
    definition: Any = op_def_registry.get(node.op)
    for each in definition.output_arg[:1] if definition else ():
        return each.type or (node.attr[each.type_attr].type if each.type_attr else 0)
    return 0


def _is_known(node: NodeDef, known: Mapping[str, object]) -> bool:
    """Whether an operation is a function of known values alone."""
    sources = _sources(node)
    if not sources or node.op == _READS:
        return False
    definition: Any = op_def_registry.get(node.op)
    if definition is None or definition.is_stateful:
        return False
    return all(name in known for name in sources)
