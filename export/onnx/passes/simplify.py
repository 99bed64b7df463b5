"""Simplification of ONNX graphs that changes no operator: constants are folded, and what is twice or unused goes."""

from collections.abc import Sequence

import onnx_ir as ir
from onnx_ir.passes import common
from onnxscript import optimizer

from keras_transformer.export.onnx.graph import all_nodes
from keras_transformer.export.onnx.passes.naming import make_names_unique

_FOLD_BYTES = 4096
# A domain in which a pass does not know a node.
_KEPT = "kept"
_Output = tuple[str | None, ir.TypeProtocol | None, ir.Shape | None]


def simplify(model: ir.Model) -> None:
    """Simplifies a graph, in place.

    This is what is needed of the optimizer of tf2onnx, whose passes copy the graph and search it again and again.
    """
    outputs = [(each.name, each.type, each.shape) for each in model.graph.outputs]
    make_names_unique(model.graph)  # Rules number their values from 1, and name constants after one weight.
    optimizer.fold_constants(model, input_size_limit=_FOLD_BYTES, output_size_limit=_FOLD_BYTES)
    _drop_identities(model)
    common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    common.DeduplicateInitializersPass()(model)
    _drop_zero_points(model.graph)
    _return_own_values(model.graph)
    _remove_duplicates(model, model.graph)
    common.RemoveUnusedNodesPass()(model)
    _separate_outputs(model.graph, outputs)
    make_names_unique(model.graph)


def _drop_identities(model: ir.Model) -> None:
    """Drops nodes that copy a value, but for those in bodies that return what an enclosing graph computes.

    Two branches may return one such value, which the pass takes for an output of both.
    """
    returned = [node for node in all_nodes(model.graph) if node.op_type == "Identity" and _returns_captured(node)]
    for node in returned:
        node.domain = _KEPT
    common.IdentityEliminationPass()(model)
    for node in returned:
        node.domain = ""


def _returns_captured(node: ir.Node) -> bool:
    value = node.inputs[0]
    producer = None if value is None else value.producer()
    return node.outputs[0].is_graph_output() and producer is not None and producer.graph is not node.graph


def _drop_zero_points(graph: ir.Graph) -> None:
    """Leaves out zero points that are 0, as of the converter: ONNX Runtime fails where several products share one."""
    for node in all_nodes(graph):
        if node.op_type == "MatMulInteger":
            for number in range(2, len(node.inputs)):
                value = node.inputs[number]
                constant = None if value is None else value.const_value
                if constant is not None and not constant.numpy().any():
                    node.replace_input_with(number, None)


def _return_own_values(graph: ir.Graph) -> None:
    """Lets bodies return a copy of what an enclosing graph computes, which the pass takes for the value itself."""
    for node in graph:
        for body in (each.as_graph() for each in node.attributes.values() if each.type == ir.AttributeType.GRAPH):
            for number, value in enumerate(body.outputs):
                producer = value.producer()
                if producer is not None and producer.graph is not body:
                    copy = ir.node("Identity", [value])
                    copy.outputs[0].name = f"{value.name}/{body.name}"
                    copy.outputs[0].type, copy.outputs[0].shape = value.type, value.shape
                    body.append(copy)
                    body.outputs[number] = copy.outputs[0]
            _return_own_values(body)


def _separate_outputs(graph: ir.Graph, outputs: Sequence[_Output]) -> None:
    """Makes each output a value of its own, and the result of a node.

    The passes merge outputs with what is equal, others and constants too, of which the type may not be known; a runtime
    knows them by name.

    Args:
        graph: `onnx_ir.Graph`, changed in place.
        outputs: the name, the type and the shape of each output.
    """
    first: dict[ir.Value, str | None] = {}
    for value in dict.fromkeys(each for each in graph.outputs if each.name in graph.initializers):
        del graph.initializers[str(value.name)]
        value.name = first[value] = f"{value.name}/constant"
        graph.initializers.add(value)
    for number, (value, (name, type, shape)) in enumerate(zip(list(graph.outputs), outputs, strict=True)):
        value.type, value.shape = value.type or type, value.shape or shape
        if value in first:
            value.name = first[value]
            copy = ir.node("Identity", [value], name=name)
            copy.outputs[0].name, copy.outputs[0].type, copy.outputs[0].shape = name, value.type, value.shape
            graph.append(copy)
            graph.outputs[number] = copy.outputs[0]
        first.setdefault(value, name)


def _remove_duplicates(model: ir.Model, graph: ir.Graph) -> None:
    """Eliminates common subexpressions and unused constants, in bodies too, which the library's passes skip."""
    common.CommonSubexpressionEliminationPass()(ir.Model(graph, ir_version=model.ir_version))
    for node in graph:
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                _remove_duplicates(model, attribute.as_graph())
    for name, value in list(graph.initializers.items()):
        if not value.uses() and not value.is_graph_output():
            graph.initializers.pop(name)
