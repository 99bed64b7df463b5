"""`Roll`, which TFLite lacks, as two slices and a concatenation for each axis."""

from typing import Any

import numpy as np

from keras_transformer.export.tflite.constants import INT32, add_constant, constant_value


def without_rolls(function: Any) -> int:
    """Rewrites every `Roll` with constant shifts and axes in a function; returns how many.

    Args:
        function: `FunctionDef` of a SavedModel, changed in where.
    """
    nodes = {node.name: node for node in function.node_def}
    count = 0
    for node in [node for node in nodes.values() if node.op == "Roll"]:
        shifts, axes = (constant_value(nodes, name) for name in node.input[1:3])
        if shifts is None or axes is None or (axes < 0).any() or not shifts.all():
            continue
        steps = list(zip(np.atleast_1d(shifts).tolist(), np.atleast_1d(axes).tolist(), strict=True))
        source, kind = node.input[0], node.attr["T"].type
        for index, (shift, axis) in enumerate(steps):
            # The node keeps its name as the last concatenation, so that its consumers find it.
            last = index == len(steps) - 1
            joined = node if last else function.node_def.add(name=f"{node.name}/rolled_{index}")
            source = _roll(function, joined, f"{node.name}/{index}", source, (-shift, axis, kind))
        count += 1
    return count


def _roll(function: Any, joined: Any, name: str, source: str, where: tuple[int, int, int]) -> str:
    """`concat(x[split:], x[:split])` along an axis, where a negative split counts from the end."""
    split, axis, kind = where
    bounds = np.zeros(axis + 1, np.int32)
    bounds[axis] = split
    parts = [_slice(function, f"{name}/{label}", source, bounds, (axis, kind, label)) for label in ("tail", "head")]
    joined.op = "ConcatV2"
    del joined.input[:]
    joined.input.extend([*parts, add_constant(function, f"{name}/axis", np.array(axis))])
    joined.attr.clear()
    joined.attr["T"].type = kind
    joined.attr["Tidx"].type = INT32
    joined.attr["N"].i = 2
    return f"{joined.name}:output:0"


def _slice(function: Any, name: str, source: str, bounds: np.ndarray, where: tuple[int, int, str]) -> str:
    axis, kind, label = where
    begin, end = (bounds, np.zeros_like(bounds)) if label == "tail" else (np.zeros_like(bounds), bounds)
    inputs = [source]
    for part, array in (("begin", begin), ("end", end), ("strides", np.ones_like(bounds))):
        inputs.append(add_constant(function, f"{name}/{part}", array))
    node = function.node_def.add(name=name, op="StridedSlice", input=inputs)
    node.attr["T"].type = kind
    node.attr["Index"].type = INT32
    every, others = (1 << axis + 1) - 1, (1 << axis) - 1
    masks = {"begin_mask": others, "end_mask": every} if label == "tail" else {"begin_mask": every, "end_mask": others}
    for mask in ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"):
        node.attr[mask].i = masks.get(mask, 0)
    return f"{name}:output:0"
