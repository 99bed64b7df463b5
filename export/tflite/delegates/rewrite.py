"""The rewrites of a TFLite model for the GPU delegate, in their order."""

from __future__ import annotations

from typing import Any

from keras_transformer.export.tflite.delegates import angle_tables, cache_updates, integers, layouts
from keras_transformer.export.tflite.delegates.editor import Editor, drop_unread
from keras_transformer.export.tflite.graph import graphs, signature_of

_RULES = (
    integers.without_equal_casts,
    cache_updates.without_cache_scatters,
    angle_tables.with_angle_tables,
    layouts.without_shrunk_axes,
    layouts.without_batches_of_lookups,
    layouts.with_flat_indices,
    layouts.without_broadcasts,
)


def rewrite_for_gpu(model: Any) -> None:
    """Writes the graphs of fixed shapes with the operators that the GPU delegate takes; values change by rounding only.

    Args:
        model: `ModelT`, changed in place.
    """
    for graph in graphs(model):
        if any(None in signature_of(tensor) for tensor in graph.tensors):
            continue
        integers.without_long_integers(graph)
        editor = Editor(graph)
        while integers.fold_constants(editor):
            pass
        for rule in _RULES:
            editor.apply(rule)
            drop_unread(graph)
