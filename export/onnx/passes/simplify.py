"""Simplification of ONNX graphs that changes no operator: constants are folded, and what is twice or unused goes."""

import onnx_ir as ir
from onnx_ir.passes import common
from onnxscript import optimizer

from keras_transformer.export.onnx.passes.naming import make_names_unique

_FOLD_BYTES = 4096


def simplify(model: ir.Model) -> None:
    """Simplifies a graph, in place.

    This is what is needed of the optimizer of tf2onnx, whose passes copy the graph and search it again and again.
    """
    make_names_unique(model.graph)  # Rules number their values from 1, and name constants after one weight.
    optimizer.fold_constants(model, input_size_limit=_FOLD_BYTES, output_size_limit=_FOLD_BYTES)
    for each in (
        common.IdentityEliminationPass(),
        common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0),
        common.DeduplicateInitializersPass(),
    ):
        each(model)
    _remove_duplicates(model, model.graph)
    common.RemoveUnusedNodesPass()(model)
    make_names_unique(model.graph)


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
