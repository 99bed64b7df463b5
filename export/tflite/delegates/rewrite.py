"""The rewrites of a TFLite model for the GPU delegate, in their order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keras_transformer.export.tflite.delegates import (
    angles,
    cache_updates,
    integers,
    lanes,
    layouts,
    scatters,
)
from keras_transformer.export.tflite.graph import Graph, graphs
from keras_transformer.export.tflite.tree import schema, signature_of

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import ModelT

_RULES = (
    integers.without_equal_casts,
    cache_updates.without_cache_scatters,
    scatters.without_scatters,
    scatters.with_inner_sums,
    scatters.without_boolean_choices,
    lanes.with_equal_batches,
    lanes.with_full_lanes,
    angles.with_tables,
    angles.with_polynomials,
    layouts.without_boolean_slices,
    layouts.without_shrunk_axes,
    layouts.without_batches_of_lookups,
    layouts.with_flat_indices,
    layouts.without_broadcasts,
    layouts.with_wide_padding,
    layouts.with_wide_choices,
    layouts.with_ranks_of_constants,
    layouts.without_equal_operands,
)
# The newest versions of operators that the delegate takes; later ones add types that are not here any more.
_VERSIONS = {"STRIDED_SLICE": 2}


def rewrite_for_gpu(model: ModelT) -> None:
    """Writes the graphs of fixed shapes with the operators that the GPU delegate takes; values change by rounding only.

    Args:
        model: `ModelT`, changed in place.
    """
    for graph in graphs(model):
        if any(None in signature_of(tensor) for tensor in graph.tensors):
            continue
        integers.without_long_integers(graph)
        _fold(graph)
        for rule in _RULES:
            graph.replace_operators(rule)
            graph.drop_unread()
        _fold(graph)
        layouts.with_own_outputs(graph)
    _lower_versions(model)


def _fold(graph: Graph) -> None:
    graph.find_uses()
    while integers.fold_constants(graph):
        pass


def _lower_versions(model: ModelT) -> None:
    every = graphs(model)
    for number, code in enumerate(model.operatorCodes):
        users = [(graph, each) for graph in every for each in graph.subgraph.operators if each.opcodeIndex == number]
        if not users:
            continue
        newest = _VERSIONS.get(users[0][0].kind(users[0][1]))
        types = {graph.tensors[int(each.outputs[0])].type for graph, each in users}
        if newest is not None and types <= {schema().TensorType.FLOAT32, schema().TensorType.INT32}:
            code.version = min(code.version, newest)
