"""A traced graph for a format: operations that the format lacks are replaced by functions of operations that it has."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import tensorflow as tf

from keras_transformer.export.errors import ExportError, UnsupportedOpError
from keras_transformer.export.graph.inlining import inlined, without_layers
from keras_transformer.export.graph.part import GraphPart, Node
from keras_transformer.export.graph.repeated_layers import MARK as REPEATED
from keras_transformer.export.graph.repeated_layers import WEIGHT
from keras_transformer.export.operations.branches import with_two_branches
from keras_transformer.export.operations.insertion import (
    INSERTED,
    Call,
    InsertedFunction,
    known,
    rename,
    replace,
    spec_key,
    traced,
    value_key,
)
from keras_transformer.export.operations.loops.carried_lists import with_carried_elements
from keras_transformer.export.operations.loops.counters import with_counters
from keras_transformer.export.operations.loops.reversed_lists import with_stacks_reversed
from keras_transformer.export.operations.operation import ONNX, SAVED_MODEL, Decomposed, Lowering, Native, Refused
from keras_transformer.export.operations.table import lowerings_in
from keras_transformer.export.remedies import Remedy

if TYPE_CHECKING:
    from tensorflow.core.framework.graph_pb2 import GraphDef

    from keras_transformer.export.graph.traced_graph import TracedGraph

_MOST_NESTED = 8
_MOST_PASSES = 8


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
    given = graph.outlined if is_outlined else graph.graph_def
    found = given if format == SAVED_MODEL else with_two_branches(given)
    found = with_stacks_reversed(with_carried_elements(with_counters(found))) if format == ONNX else found
    # What takes the place of one operation may let another one be replaced, such as the part of a complex number.
    lowerings = lowerings_in(format)
    for number in range(_MOST_PASSES):
        lowering = _Lowering(lowerings, (number,))
        chosen = lowering.chosen(found, list(graph.outputs.values()), graph.weights)
        _check_refused(chosen, format, locate)
        before, found = found, lowering.applied(found, chosen)
        if found is before:
            break
    if found is given:
        return graph
    return dataclasses.replace(graph, graph_def=without_layers(found), outlined=found)


def _check_refused(chosen: Iterable[_Chosen], format: str, locate: Callable[[str, str], str]) -> None:
    """Raises for the operations that the table refuses."""
    refusals = ((each.node, each.lowering) for each in chosen if isinstance(each.lowering, Refused))
    found = {(node.op, locate(node.op, node.message.name)): refused for node, refused in refusals}
    if found:
        (op, layer), *others = found
        refused = found[op, layer]
        hint = "; ".join(filter(None, (refused.reason, refused.remedy)))
        raise UnsupportedOpError(format, op, layer, others, hint, None if refused.remedy else Remedy.OPERATION)


def _parts(graph_def: GraphDef, results: Sequence[str], weights: Iterable[str]) -> Iterator[tuple[str, GraphPart]]:
    """The graph, under the name "", and its functions by name."""
    yield "", GraphPart(graph_def.node, results, weights=weights)
    for each in graph_def.library.function:
        is_repeated = REPEATED in each.signature.name
        names = [argument.name for argument in each.signature.input_arg]
        own = [name for name in names if is_repeated and name.startswith(WEIGHT)]
        yield each.signature.name, GraphPart.of_function(each, own)


class _Chosen(NamedTuple):
    """What becomes of a node.

    Args:
        function: name of the function that it is in, or "".
        node: `Node`.
        lowering: the first one that applies to it.
    """

    function: str
    node: Node
    lowering: Lowering


class _Lowering:
    """Replaces the operations of graphs.

    Args:
        lowerings: dict of the name of an operation to its lowerings, in the order of precedence.
        scope: numbers that tell these replacements from others in names: that of the pass, and one for each graph of a
            decomposition that this one is within.
    """

    def __init__(self, lowerings: Mapping[str, Sequence[Lowering]], scope: tuple[int, ...]) -> None:
        self._lowerings, self._scope = lowerings, scope
        self._functions: dict[Hashable, InsertedFunction] = {}

    def chosen(self, graph_def: GraphDef, results: Sequence[str], weights: Iterable[str] = ()) -> list[_Chosen]:
        """What becomes of the nodes of a graph that do not stay as they are.

        Args:
            graph_def: `GraphDef`.
            results: the tensors that it computes, `"node:index"`.
            weights: names of the placeholders of weights.
        """
        found: list[_Chosen] = []
        for key, part in _parts(graph_def, results, weights):
            for node in part:
                lowerings = self._lowerings.get(node.op, ())
                first = next((each for each in lowerings if isinstance(each, Native) or each.when(node)), None)
                if first is not None:
                    found.append(_Chosen(key, node, first))
        return found

    def applied(self, graph_def: GraphDef, chosen: Iterable[_Chosen]) -> GraphDef:
        """A copy of a `GraphDef` in which operations are replaced; the same one if there are none to replace."""
        calls: dict[str, dict[str, Call]] = collections.defaultdict(dict)
        for key, node, lowering in chosen:
            if isinstance(lowering, Decomposed):
                calls[key][node.message.name] = self._call(lowering, node)
        if not calls:
            return graph_def
        copy: GraphDef = tf.compat.v1.GraphDef()
        copy.CopyFrom(graph_def)
        replace(copy.node, calls[""])
        for each in copy.library.function:
            names = replace(each.node_def, calls[each.signature.name])
            rename(each, names)
        for function in self._functions.values():
            copy.library.function.extend(function.messages)
        return inlined(copy, INSERTED)

    def _call(self, lowering: Decomposed, node: Node) -> Call:
        operands = list(lowering.operands(node))
        values = [known(node.part.node(each)) for each in operands]
        given = [each for each, value in zip(operands, values, strict=True) if value is None]
        specs = [node.part.spec(each) for each in given]
        attributes = {name: node.attribute(name) for name in lowering.attributes}
        key = (lowering, node.op, *map(spec_key, specs), *map(value_key, values), repr(attributes))
        if key not in self._functions:
            name = "_".join(map(str, (*self._scope, len(self._functions), node.op)))
            function = traced(lowering, values, specs, attributes)
            self._functions[key] = InsertedFunction.of(name, function, self._nested(node.op))
        return Call(self._functions[key], given)

    def _nested(self, operation: str) -> Callable[[GraphDef, Sequence[str]], GraphDef]:
        """What replaces the operations in the function of an operation, given its graph and the tensors of its results."""
        if len(self._scope) > _MOST_NESTED:
            raise ExportError(f"the function in place of {operation} contains the operation itself")
        lowering = _Lowering(self._lowerings, (*self._scope, 0))
        return lambda graph_def, results: lowering.applied(graph_def, lowering.chosen(graph_def, results))
