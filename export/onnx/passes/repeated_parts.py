"""Layers that repeat are converted once: their graph takes the place of each of their calls.

The converter's time grows faster than its graph. It sees every repeated layer as one opaque operation, and the graph of
each kind of layer by itself; see `graph.repeated_layers`. What ONNX has as an operator is opaque to it as well; see
`graph.native_functions`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import onnx_ir as ir
import tensorflow as tf

from keras_transformer.export.graph.inlining import is_layer, opened, result_names
from keras_transformer.export.graph.native_functions import MARK as NATIVE
from keras_transformer.export.graph.part import every_node
from keras_transformer.export.graph.repeated_layers import MARK, WEIGHT
from keras_transformer.export.graph.traced_graph import TracedGraph
from keras_transformer.export.onnx.graph import add_constant, all_graphs, all_nodes, name_of

if TYPE_CHECKING:
    from tensorflow.core.framework.function_pb2 import FunctionDef
    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef

# An operation of TensorFlow with any inputs and outputs, which its optimizer leaves alone, and that ONNX does not have.
OPAQUE = "PyFuncStateless"
_NAME, _ENSURE = "token", "EnsureShape"


@dataclasses.dataclass(frozen=True)
class OpaqueLayers:
    """What is taken out of a graph, by the name of its function.

    Args:
        repeated: dict of name to the `TracedGraph` of a repeated layer.
        native: dict of name to the `FunctionDef` of what is an operator.
    """

    repeated: Mapping[str, TracedGraph]
    native: Mapping[str, Any]


def with_opaque_layers(graph: TracedGraph) -> tuple[TracedGraph, OpaqueLayers]:
    """Takes the repeated layers and the native ones out of a graph.

    Args:
        graph: `TracedGraph`.

    Returns:
        `(graph, layers)`: the graph with an opaque operation in place of each of them, and the `OpaqueLayers`, whose graphs
        have opaque operations as well. Inputs are in the order of those of the operation.
    """
    functions = {each.signature.name: each for each in graph.outlined.library.function}
    graph_def, used = _opaque_graph(graph.outlined)
    native = {name: functions[name] for name in used if NATIVE in name}
    repeated = {}
    for name in used - native.keys():
        repeated[name], within = _part(functions[name], functions.values())
        native |= {each: functions[each] for each in within}
    return dataclasses.replace(graph, graph_def=graph_def), OpaqueLayers(_ordered(repeated), _ordered(native))


def _ordered(parts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: parts[name] for name in sorted(parts)}


def _opaque_graph(source: Any) -> tuple[GraphDef, set[str]]:
    """A `GraphDef` with opaque operations, and the names of the functions in whose place they are."""
    graph_def = tf.compat.v1.GraphDef(versions=source.versions)
    _copy(source.node, graph_def.node, "")
    for each in source.library.function:
        if MARK not in each.signature.name and NATIVE not in each.signature.name:
            copy = graph_def.library.function.add()
            copy.CopyFrom(each)
            del copy.node_def[:]
            names = _copy(each.node_def, copy.node_def, ":output:0")
            for key, source in each.ret.items():
                copy.ret[key] = names.get(source, source)
    return graph_def, {node.attr[_NAME].s.decode() for node in every_node(graph_def) if node.op == OPAQUE}


def _copy(nodes: Iterable[NodeDef], copies: Any, output: str) -> dict[str, str]:
    """Copies operations, with an opaque one in place of each call of a layer.

    TensorFlow forgets the shapes of an opaque result: an operation behind it ensures them.

    Args:
        nodes: `NodeDef`s.
        copies: repeated field of the copies.
        output: what follows the name of an operation where its only result is read.

    Returns:
        Dict of the name of a result of a call to what is read in its place.
    """
    names: dict[str, str] = {}
    for node in nodes:
        for number in range(len(node.attr["Tout"].list.type) if is_layer(node) else 0):
            names.update(dict.fromkeys(result_names(node.name, number), f"{node.name}/result_{number}{output}"))
    for node in nodes:
        copy = copies.add()
        copy.CopyFrom(_opaque(node) if is_layer(node) else node)
        copy.input[:] = [names.get(source, source) for source in copy.input]
        copies.extend(_ensured(node, bool(output)) if is_layer(node) else ())
    return names


def _opaque(call: NodeDef) -> NodeDef:
    """The opaque operation in place of a call."""
    node = tf.compat.v1.NodeDef(name=call.name, op=OPAQUE)
    node.input[:] = [each for each in call.input if not each.startswith("^")]
    node.attr["Tin"].CopyFrom(call.attr["Tin"])
    node.attr["Tout"].CopyFrom(call.attr["Tout"])
    node.attr[_NAME].s = call.attr["f"].func.name.encode()
    return node


def _ensured(call: NodeDef, is_in_function: bool) -> Iterator[NodeDef]:
    """An operation behind each result of a call, which ensures its shape."""
    for number, dtype in enumerate(call.attr["Tout"].list.type):
        shown = tf.compat.v1.NodeDef(name=f"{call.name}/result_{number}", op=_ENSURE)
        shown.input.append(f"{call.name}:output:{number}" if is_in_function else f"{call.name}:{number}")
        shown.attr["T"].type = dtype
        shown.attr["shape"].shape.CopyFrom(call.attr["_output_shapes"].list.shape[number])
        yield shown


def _part(function: FunctionDef, library: Iterable[FunctionDef]) -> tuple[TracedGraph, set[str]]:
    """The graph of a repeated layer, and the names of the native functions in it."""
    found, results = opened(function, library)
    graph_def, used = _opaque_graph(found)
    names = [each.name for each in function.signature.input_arg]
    inputs, weights = (
        tuple(each for each in names if each.startswith(WEIGHT) is is_weight) for is_weight in (False, True)
    )
    native = {each for each in used if NATIVE in each}  # The library has functions of the rest of the graph too.
    return TracedGraph(graph_def, graph_def, inputs, {each: f"{each}:0" for each in results}, weights), native


class Ends(NamedTuple):
    """The names of the inputs of a part, in the order of those of the opaque operation, and of its outputs."""

    inputs: Sequence[str]
    outputs: Sequence[str]


def insert_parts(model: ir.Model, parts: Mapping[str, tuple[Ends, ir.Model]], label: str) -> None:
    """Puts the graphs of layers in place of their opaque operations; others stay.

    Args:
        model: `onnx_ir.Model`, changed in place.
        parts: dict of the name of a function to the `Ends` of a layer and the `onnx_ir.Model` that was made of it.
        label: in front of the names of their constants.
    """
    constants: dict[str, dict[str, ir.Value]] = {}
    opaque = [each for each in all_nodes(model.graph) if each.op_type == OPAQUE]
    found = [(each, each.attributes[_NAME].as_string()) for each in opaque]
    used = {name for _, name in found}
    for number, (name, (_, part)) in enumerate(parts.items()):  # Not TensorFlow's counters.
        items = part.graph.initializers.items() if name in used else ()
        constants[name] = {key: _copied(model.graph, f"{label}_{number}/{key}", value) for key, value in items}
    for node, name in found:
        if name in parts:
            _insert(node, *parts[name], constants[name])


def _copied(graph: ir.Graph, name: str, value: ir.Value) -> ir.Value:
    """A constant of another graph under another name."""
    tensor = value.const_value
    assert tensor is not None
    return add_constant(graph, name, tensor.numpy())


def _insert(node: ir.Node, ends: Ends, part: ir.Model, constants: Mapping[str, ir.Value]) -> None:
    """Puts the graph of a layer in the place of its opaque operation, under the name of that operation."""
    graph, copy = node.graph, part.graph.clone()
    assert graph is not None
    results = dict(zip(ends.outputs, node.outputs, strict=True))
    given = dict(zip(ends.inputs, node.inputs, strict=True))
    for value in (*copy.inputs, *copy.initializers.values()):
        new = constants.get(name_of(value)) or given[name_of(value)]
        assert new is not None
        value.replace_all_uses_with(new)
    for each in all_nodes(copy):
        each.name = f"{node.name}/{each.name}"
        for value in each.outputs:
            if value.name not in results and value.name:
                value.name = f"{node.name}/{value.name}"
    for body in [each for each in all_graphs(copy) if each is not copy]:
        for value in (*body.inputs, *body.initializers.values()):
            value.name = f"{node.name}/{value.name}"
    made = {name_of(value): value for value in copy.outputs}
    copy.outputs.clear()
    for name, old in results.items():
        made[name].name, made[name].type, made[name].shape = old.name, old.type, old.shape
        old.replace_all_uses_with(made[name], replace_graph_outputs=True)
    nodes = list(copy)
    copy.remove(nodes)
    graph.insert_before(node, nodes)
    graph.remove(node, safe=True)
