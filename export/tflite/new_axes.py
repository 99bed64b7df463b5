"""Rewrite of slices with new axes, `x[:, None]`, which TFLite's converter lowers for static shapes only."""

from __future__ import annotations

from typing import Any

import numpy as np

from keras_transformer.export.tflite.constants import INT32, add_constant, constant_value


def without_new_axes(function: Any) -> int:
    """Rewrites every slice with a new axis in one function; returns how many."""
    nodes = {node.name: node for node in function.node_def}
    slices = [node for node in nodes.values() if node.op == "StridedSlice" and _mask(node, "new_axis_mask")]
    count = 0
    for node in slices:
        bounds = [constant_value(nodes, name) for name in node.input[1:4]]
        known = [bound for bound in bounds if bound is not None]
        if len(known) == len(bounds):
            _rewrite(function, node, known)
            count += 1
    return count


def _rewrite(function: Any, node: Any, bounds: list[np.ndarray]) -> None:
    entries = _entries(node, len(bounds[0]))
    kept = [index for index, kind in enumerate(entries) if kind != "new"]
    axes = new_axes(entries)
    inner = function.node_def.add()
    inner.CopyFrom(node)
    inner.name = f"{node.name}/slice"
    inner.attr["Index"].type = INT32
    inner.attr.pop("_output_shapes", None)
    for position, (label, bound) in enumerate(zip(("begin", "end", "strides"), bounds, strict=True), 1):
        inner.input[position] = add_constant(function, f"{node.name}/{label}", bound[kept])
    for mask in ("begin_mask", "end_mask", "ellipsis_mask", "shrink_axis_mask"):
        bits = _mask(inner, mask)
        inner.attr[mask].i = sum(1 << position for position, index in enumerate(kept) if bits >> index & 1)
    inner.attr["new_axis_mask"].i = 0
    # The node keeps its name as the last ExpandDims, so that its consumers find it.
    source = f"{inner.name}:output:0"
    for step, axis in enumerate(axes[:-1]):
        expand = function.node_def.add(name=f"{node.name}/expand_{step}")
        source = _expand(function, expand, source, axis, node.attr["T"].type)
    kind = node.attr["T"].type
    node.attr.clear()
    _expand(function, node, source, axes[-1], kind)


def _expand(function: Any, node: Any, source: str, axis: int, kind: Any) -> str:
    node.op = "ExpandDims"
    del node.input[:]
    node.input.extend([source, add_constant(function, f"{node.name}/axis", np.array(axis, np.int32))])
    node.attr["T"].type = kind
    node.attr["Tdim"].type = INT32
    return f"{node.name}:output:0"


def _entries(node: Any, count: int) -> list[str]:
    """Kind of each entry of the slice: `ellipsis`, `new`, `shrink` or `range`; TensorFlow's own precedence."""
    masks = (("ellipsis", "ellipsis_mask"), ("new", "new_axis_mask"), ("shrink", "shrink_axis_mask"))
    kinds = []
    for index in range(count):
        kinds.append(next((kind for kind, mask in masks if _mask(node, mask) >> index & 1), "range"))
    return kinds


def _mask(node: Any, name: str) -> int:
    """A mask of a slice. Reading a missing attribute of a node would add an empty, invalid one."""
    return node.attr[name].i if name in node.attr else 0


def new_axes(entries: list[str]) -> list[int]:
    """Returns the axes to expand, in order: those before an ellipsis from the left, then those after it from the right.

    Args:
        entries: list of `"ellipsis"`, `"new"`, `"shrink"` and `"range"`.

    Returns:
        List of axes.
    """
    split = entries.index("ellipsis") if "ellipsis" in entries else len(entries)
    left, right = entries[:split], entries[split + 1 :][::-1]
    axes = [_kept_before(left, index) for index, kind in enumerate(left) if kind == "new"]
    return axes + [-1 - _kept_before(right, index) for index, kind in enumerate(right) if kind == "new"]


def _kept_before(entries: list[str], index: int) -> int:
    return sum(kind != "shrink" for kind in entries[:index])
