"""Operators of booleans and integers in types that WebGPU and Hexagon compute them in.

What WebGPU lacks otherwise goes to the CPU and back; Hexagon refuses it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from keras_transformer.export.onnx.delegates.editor import Editor
from keras_transformer.export.onnx.graph import NodeMaker


def with_supported_types(editor: Editor) -> None:
    """Writes operators of booleans and integers as others of the same values, and `Round` as steps of `Floor`.

    Args:
        editor: `Editor` of a graph of fixed shapes.
    """
    found: dict[str, list[Any]] = {}
    for node in editor.nodes(*_RULES):
        make, made = editor.making(node)
        _RULES[node.op_type](editor, node, make)
        if made:
            found[node.output[0]] = made
    editor.replace(found)


def _copied(editor: Editor, node: Any, make: NodeMaker) -> None:
    if editor.dtype(node.input[0]) == TensorProto.BOOL:
        make.into(node.output[0], "Cast", _number(make, node.input[0]), to=TensorProto.BOOL)


def _moved(editor: Editor, node: Any, make: NodeMaker) -> None:
    """Booleans move as floats; all inputs of a `Concat` are what moves, and the first one of others."""
    if editor.dtype(node.input[0]) != TensorProto.BOOL:
        return
    count = len(node.input) if node.op_type == "Concat" else 1
    attributes = {each.name: helper.get_attribute_value(each) for each in node.attribute}
    numbers = [_number(make, name) for name in node.input[:count]]
    moved = make(node.op_type, *numbers, *node.input[count:], **attributes)
    make.into(node.output[0], "Cast", moved, to=TensorProto.BOOL)


def _either(editor: Editor, node: Any, make: NodeMaker) -> None:
    neither = make("And", *(make("Not", name) for name in node.input))
    make.into(node.output[0], "Not", neither)


def _sliced(editor: Editor, node: Any, make: NodeMaker) -> None:
    """Booleans are sliced as floats, and integers gathered by the constant indices of the slice."""
    if editor.dtype(node.input[0]) != TensorProto.INT32:
        _moved(editor, node, make)
        return
    chosen = _chosen(editor, node)
    if not chosen:
        return
    indices = {axis: make.constant(part, f"indices_{axis}") for axis, part in chosen.items()}
    value = node.input[0]
    *others, last = indices
    for axis in others:
        value = make("Gather", value, indices[axis], axis=axis)
    make.into(node.output[0], "Gather", value, indices[last], axis=last)


def _chosen(editor: Editor, node: Any) -> dict[int, np.ndarray] | None:
    """The indices that a `Slice` takes along each axis; None unless they are constant."""
    known = (editor.value(name) if name else None for name in node.input[1:])
    parts = [part.tolist() for part in known if part is not None]
    shape = editor.shape(node.input[0])
    if shape is None or len(parts) < len(node.input) - 1:
        return None
    starts, ends = parts[:2]
    axes = parts[2] if len(parts) > 2 else range(len(starts))
    steps = parts[3] if len(parts) > 3 else [1] * len(starts)
    found = {}
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        size = shape[axis]
        if size is None:
            return None
        # Before the first element, where Python's slices have no number for the end.
        part = slice(start, None if step < 0 and end < -size else end, step)
        found[axis % len(shape)] = np.arange(size, dtype="int32")[part]
    return found


def _absolute(editor: Editor, node: Any, make: NodeMaker) -> None:
    if editor.dtype(node.input[0]) == TensorProto.INT32:
        zero = make.constant(np.array(0, "int32"), "zero")
        negative = make("Less", node.input[0], zero)
        make.into(node.output[0], "Where", negative, make("Sub", zero, node.input[0]), node.input[0])


def _narrowed(editor: Editor, node: Any, make: NodeMaker) -> None:
    """Indices of `TopK`, which are of int64, become int32 by a lookup in their own numbers."""
    source, to = editor.makers.get(node.input[0]), node.attribute[0].i
    if source is None or source.op_type != "TopK" or node.input[0] != source.output[1] or to != TensorProto.INT32:
        return
    shape, axis = editor.shape(source.input[0]), next((each.i for each in source.attribute if each.name == "axis"), -1)
    size = None if shape is None else shape[axis]
    if size is not None:
        numbers = make.constant(np.arange(size, dtype="int32"), "numbers")
        make.into(node.output[0], "Gather", numbers, node.input[0], axis=0)


def _rounded(editor: Editor, node: Any, make: NodeMaker) -> None:
    """A half goes to the even neighbor: up from an odd floor, and down to an even one."""
    if editor.dtype(node.input[0]) != TensorProto.FLOAT:
        return
    half, two = (make.constant(np.array(value, "float32"), name) for value, name in ((0.5, "half"), (2, "two")))
    floor = make("Floor", node.input[0])
    rest = make("Sub", node.input[0], floor)
    above, least = (_number(make, make(op, rest, half)) for op in ("Greater", "GreaterOrEqual"))
    is_odd = make("Sub", floor, make("Mul", make("Floor", make("Mul", floor, half)), two))
    up = make("Add", above, make("Mul", is_odd, make("Sub", least, above)))
    make.into(node.output[0], "Add", floor, up)


def _number(make: NodeMaker, name: str) -> str:
    return make("Cast", name, to=TensorProto.FLOAT)


_RULES: dict[str, Callable[[Editor, Any, NodeMaker], None]] = {
    "Abs": _absolute,
    "Cast": _narrowed,
    "Concat": _moved,
    "Identity": _copied,
    "Or": _either,
    "Round": _rounded,
    "Slice": _sliced,
    "Tile": _moved,
    "Transpose": _moved,
}


def with_integer_operators(editor: Editor) -> None:
    """Writes `Neg` of int32 as a difference, and `Pad` of int32 as a join with constants.

    Args:
        editor: `Editor` of a graph of fixed shapes.
    """
    found: dict[str, list[Any]] = {}
    for node in editor.nodes("Neg", "Pad"):
        make, made = editor.making(node)
        if editor.dtype(node.input[0]) != TensorProto.INT32:
            continue
        if node.op_type == "Neg":
            make.into(node.output[0], "Sub", make.constant(np.array(0, "int32"), "zero"), node.input[0])
        else:
            _padded(editor, node, make)
        if made:
            found[node.output[0]] = made
    editor.replace(found)


def _padded(editor: Editor, node: Any, make: NodeMaker) -> None:
    shape, pads = editor.shape(node.input[0]), editor.value(node.input[1])
    value = editor.value(node.input[2]) if len(node.input) > 2 and node.input[2] else np.zeros((), "int32")
    mode = next((each.s for each in node.attribute if each.name == "mode"), b"constant")
    if shape is None or pads is None or value is None or mode != b"constant" or len(node.input) > 3:
        return
    sizes, result = [each for each in shape if each is not None], node.input[0]
    if len(sizes) < len(shape) or (pads < 0).any():
        return
    amounts = [(axis, *each) for axis, each in enumerate(pads.reshape(2, -1).T.tolist()) if any(each)]
    for number, (axis, *counts) in enumerate(amounts, 1):
        shapes = [[*sizes[:axis], count, *sizes[axis + 1 :]] for count in counts]
        before, after = (
            [make.constant(np.full(shape, value.item(), "int32"), f"{side}_{axis}")] if shape[axis] else []
            for side, shape in zip(("before", "after"), shapes, strict=True)
        )
        joined = [*before, result, *after]
        sizes[axis] += sum(counts)
        if number < len(amounts):
            result = make("Concat", *joined, axis=axis)
        else:
            make.into(node.output[0], "Concat", *joined, axis=axis)
