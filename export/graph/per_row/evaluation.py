"""A traced function evaluated in the graph that is being traced, with an index for each row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import tensorflow as tf

from keras_transformer.export.graph.part import node_name
from keras_transformer.export.graph.per_row import computing, shapes, slices
from keras_transformer.export.graph.per_row.step import Step
from keras_transformer.export.graph.per_row.values import Stacked, Value, depends_on_row, plain, rank_of

if TYPE_CHECKING:
    from tensorflow.core.framework.node_def_pb2 import NodeDef

    from keras_transformer.export.graph.traced_graph import TracedGraph

_RULES = {**computing.RULES, **shapes.RULES, **slices.RULES}
# What keeps stacked tensors apart.
_APART = ("Pack", "Shape", "StridedSlice", "Unpack")
# Tensors of fewer axes are parts of shapes and indices.
_FEWEST_AXES = 2


class Evaluation:
    """Evaluates the operations of a traced function one by one, each once.

    Args:
        graph: `TracedGraph`. Its functions, such as those of loops, must not read the index.
        given: dict of the name of a placeholder to the value that takes its place: all inputs and weights.
        axes: dict of the name of a tensor to its axis of rows; see `batch_axes`.
    """

    def __init__(self, graph: TracedGraph, given: Mapping[str, Value], axes: Mapping[str, int]) -> None:
        self._nodes = {node.name: node for node in graph.graph_def.node}
        self._values: dict[str, list[Value]] = {name: [value] for name, value in given.items()}
        self._weights = set(graph.weights)
        self._axes = axes
        library = graph.graph_def.library
        if library.function:
            tf.graph_util.import_graph_def(tf.compat.v1.GraphDef(library=library), name="")

    def source(self, tensor: str) -> str:
        """The tensor that identities return."""
        node = self._nodes[node_name(tensor)]
        return self.source(node.input[0]) if node.op == "Identity" else tensor

    def value(self, tensor: str) -> Value:
        """The value of a tensor, `"node:index"`.

        Raises:
            InvalidModelError: an operation cannot have an index for each row.
        """
        for node in self._missing([tensor]):
            self._values[node.name] = self._evaluated(node)
        return self._read(tensor)

    def reads_only(self, tensor: str, source: str) -> bool:
        """Whether a tensor, which is not evaluated yet, is computed from one that is, and from weights alone."""
        start = node_name(source)
        read = {node_name(each) for node in self._missing([tensor]) for each in _sources(node)}
        return start in read and {name for name in read if name in self._values} <= {start, *self._weights}

    def replace(self, tensor: str, value: Value) -> None:
        """Puts a value in the place of that of a tensor, for all that is not evaluated yet."""
        self._values[node_name(tensor)] = [value]

    def _is_band(self, tensor: str) -> bool:
        """Whether a tensor is the band of a matrix of True."""
        node = self._nodes[node_name(self.source(tensor))]
        if node.op != "MatrixBandPart" or node.attr["T"].type != tf.bool.as_datatype_enum:
            return False
        ones = self._nodes[node_name(self.source(node.input[0]))]
        constant = self._nodes[node_name(self.source(ones.input[1]))] if ones.op == "Fill" else ones
        return constant.op == "Const" and bool(tf.make_ndarray(constant.attr["value"].tensor).all())

    def _missing(self, tensors: Iterable[str]) -> list[NodeDef]:
        """The operations that are still to be evaluated for tensors, in their order."""
        found: dict[str, NodeDef] = {}
        open_ends = [node_name(each) for each in tensors]
        while open_ends:
            name = open_ends.pop()
            if name not in self._values and name not in found:
                found[name] = self._nodes[name]
                open_ends += [node_name(each) for each in _sources(found[name])]
        return [node for name, node in self._nodes.items() if name in found]

    def _read(self, tensor: str) -> Value:
        name, _, index = tensor.partition(":")
        return self._values[name][int(index or 0)]

    def _evaluated(self, node: NodeDef) -> list[Value]:
        step = Step(node, [self._read(each) for each in _sources(node)], self._axes)
        if node.op == "Slice" and self._is_band(node.input[0]):
            limits = self._nodes[node_name(self.source(node.input[0]))].input[1:3]
            return slices.band(step, *(plain(self._read(each)) for each in limits))
        if any(map(depends_on_row, step.values)):
            if node.op not in _RULES:
                raise step.refused("has no form for an index of each row")
            return _RULES[node.op](step)
        is_stack = node.op == "Pack" and rank_of(step.values[0]) >= _FEWEST_AXES
        if is_stack or (node.op in _APART and any(isinstance(each, Stacked) for each in step.values)):
            return _RULES[node.op](step)
        if node.op == "Identity" and isinstance(step.values[0], Stacked):
            return [step.values[0]]
        return list(step.emitted([plain(each) for each in step.values]))


def _sources(node: NodeDef) -> list[str]:
    """The tensors that an operation reads; what it only waits for changes nothing."""
    return [each for each in node.input if not each.startswith("^")]
