"""Updates of key/value caches as slices that are written into them, in place of passes over all slots.

The converter writes `scatter_update(cache, indices, new)` as `cache * (1 - scatter(ones)) + scatter(new)`. Where the
indices are every head of consecutive slots of the one row, `DYNAMIC_UPDATE_SLICE` writes the new rows alone; a runtime that
returns the cache in the memory in which it took it does not read the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.export.tflite.delegates.cache_updates import Update, find_update
from keras_transformer.export.tflite.graph import Graph, graphs
from keras_transformer.export.tflite.tree import schema, signature_of

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import ModelT, OperatorT


def write_slices(model: ModelT) -> None:
    """Rewrites the updates of caches in the graphs of fixed shapes; values stay the same.

    Args:
        model: `ModelT`, changed in place.
    """
    for graph in graphs(model):
        is_fixed = not any(None in signature_of(tensor) for tensor in graph.tensors)
        if is_fixed and graph.replace_operators(_Slices()):
            graph.drop_unread()


class _Slices:
    """A rule of `Graph.replace_operators`, which computes the first slot once."""

    def __init__(self) -> None:
        self._starts: dict[tuple[int | None, int], int] = {}

    def __call__(self, graph: Graph, operator: OperatorT) -> bool:
        found = find_update(graph, operator)
        if found is None:
            return False
        rows = found.emit_rows(graph)
        key = found.source, found.start
        if key not in self._starts:
            self._starts[key] = _start(graph, found)
        options = schema().DynamicUpdateSliceOptionsT()
        graph.emit("DYNAMIC_UPDATE_SLICE", (found.cache, rows, self._starts[key]), found.output, options)
        return True


def _start(graph: Graph, update: Update) -> int:
    """The tensor `(4,)` of the place at which the first new row is written."""
    if update.source is None:
        return graph.constant(np.array([0, 0, update.start, 0], "int32"), "start")
    slot = graph.emit_reshape(update.source, (1,))
    if update.start:
        offset = graph.constant(np.array([update.start], "int32"), "offset")
        slot = graph.emit("ADD", (slot, offset), ("INT32", (1,)), schema().AddOptionsT(), like=update.output)
    before = graph.constant(np.zeros(2, "int32"), "start")
    after = graph.constant(np.zeros(1, "int32"), "start")
    options = schema().ConcatenationOptionsT()
    return graph.emit("CONCATENATION", (before, slot, after), ("INT32", (4,)), options, like=update.output)
