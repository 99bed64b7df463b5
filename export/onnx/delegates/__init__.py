"""Rewrites of ONNX graphs of fixed shapes into what accelerators compute well: a file for each, and `REWRITES` by name.

To add one: a file with a function of a `FixedGraph`, a line in `REWRITES`, and its name in the targets that want it.
"""

from __future__ import annotations

from collections.abc import Callable

from keras_transformer.export.onnx.delegates.fixed_graph import FixedGraph
from keras_transformer.export.onnx.delegates.sine_polynomials import with_sine_polynomials
from keras_transformer.export.onnx.delegates.sine_tables import with_sine_tables

REWRITES: dict[str, Callable[[FixedGraph], None]] = {
    "sine_tables": with_sine_tables,
    "sine_polynomials": with_sine_polynomials,
}


def rewrite(graph: FixedGraph, *names: str) -> None:
    """Applies rewrites in the given order; values change by rounding only.

    Args:
        graph: `FixedGraph`, changed in place.
        *names: keys of `REWRITES`.
    """
    for name in names:
        REWRITES[name](graph)
    graph.drop_unread()
