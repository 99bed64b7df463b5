"""Updates of int8 tensors, such as a rounded cache, which the converter lowers for wider types only."""

from typing import Any

import numpy as np

from keras_transformer.export.tflite.constants import BOOL, INT8, INT32, add_constant

# An index of a cache (B, K, L, W) is that of a row: the last axis is written whole.
_DEPTH = 3


def without_byte_scatters(function: Any) -> int:
    """Rewrites every `TensorScatterUpdate` of int8 as a choice between new rows and old ones; returns how many.

    `select(scatter(true), scatter(updates), tensor)`, with a mask of one element for each row.

    Args:
        function: `FunctionDef` of a SavedModel, changed in place.
    """
    found = [node for node in function.node_def if node.op == "TensorScatterUpdate" and node.attr["T"].type == INT8]
    for node in found:
        tensor, indices, updates = node.input
        shape = _add(function, f"{node.name}/shape", "Shape", [tensor], T=INT8, out_type=INT32)
        written = _scattered(function, f"{node.name}/rows", indices, updates, shape, INT8)
        node.op = "SelectV2"
        node.attr.clear()
        node.attr["T"].type = INT8
        node.input[:] = [_mask(function, node.name, indices, shape), written, tensor]
    return len(found)


def _mask(function: Any, name: str, indices: str, shape: str) -> str:
    """Which rows are written, `(B, K, L, 1)`."""
    begin, size, last, zero = (
        add_constant(function, f"{name}/{label}", np.array(value))
        for label, value in (("begin", [0]), ("size", [_DEPTH]), ("last", -1), ("zero", 0))
    )
    rows = _add(function, f"{name}/row_shape", "Slice", [shape, begin, size], "output", T=INT32, Index=INT32)
    largest = _add(function, f"{name}/largest", "Max", [indices, last], T=INT32, Tidx=INT32)
    true = _add(function, f"{name}/true", "GreaterEqual", [largest, zero], "z", T=INT32)
    mask = _scattered(function, f"{name}/mask", indices, true, rows, BOOL)
    return _add(function, f"{name}/mask_of_rows", "ExpandDims", [mask, last], T=BOOL, Tdim=INT32)


def _scattered(function: Any, name: str, indices: str, updates: str, shape: str, kind: int) -> str:
    return _add(function, name, "ScatterNd", [indices, updates, shape], T=kind, Tindices=INT32)


def _add(function: Any, name: str, kind: str, inputs: list[str], result: str = "output", **types: int) -> str:
    """Adds a node; returns the name of its output."""
    node = function.node_def.add(name=name, op=kind, input=inputs)
    for attribute, number in types.items():
        node.attr[attribute].type = number
    return f"{name}:{result}:0"
