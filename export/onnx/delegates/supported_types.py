"""Operators of booleans and integers in types that WebGPU and Hexagon compute them in.

What WebGPU lacks otherwise goes to the CPU and back; Hexagon refuses it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from keras_transformer.export.onnx.delegates.editor import Editor
from keras_transformer.export.onnx.graph import NodeMaker, attributes_of, name_of


def with_supported_types(editor: Editor) -> None:
    """Writes operators of booleans and integers as others of the same values, and `Round` as steps of `Floor`.

    Args:
        editor: `Editor` of a graph of fixed shapes.
    """
    makers = []
    for node in editor.nodes(*_RULES):
        makers.append(editor.making(node))
        _RULES[node.op_type](editor, node, makers[-1])
    editor.replace(*makers)


def _copied(editor: Editor, node: ir.Node, make: NodeMaker) -> None:
    if editor.dtype(node.inputs[0]) == ir.DataType.BOOL:
        make.into(name_of(node.outputs[0]), "Cast", _number(make, node.inputs[0]), to=ir.DataType.BOOL)


def _moved(editor: Editor, node: ir.Node, make: NodeMaker) -> None:
    """Booleans move as floats; all inputs of a `Concat` are what moves, and the first one of others."""
    if editor.dtype(node.inputs[0]) != ir.DataType.BOOL:
        return
    count = len(node.inputs) if node.op_type == "Concat" else 1
    numbers = [_number(make, value) for value in node.inputs[:count]]
    moved = make(node.op_type, *numbers, *node.inputs[count:], **attributes_of(node))
    make.into(name_of(node.outputs[0]), "Cast", moved, to=ir.DataType.BOOL)


def _either(editor: Editor, node: ir.Node, make: NodeMaker) -> None:
    neither = make("And", *(make("Not", value) for value in node.inputs))
    make.into(name_of(node.outputs[0]), "Not", neither)


def _sliced(editor: Editor, node: ir.Node, make: NodeMaker) -> None:
    """Booleans are sliced as floats, and integers gathered by the constant indices of the slice."""
    if editor.dtype(node.inputs[0]) != ir.DataType.INT32:
        _moved(editor, node, make)
        return
    chosen = _chosen(editor, node)
    if not chosen:
        return
    indices = {axis: make.constant(part, f"indices_{axis}") for axis, part in chosen.items()}
    value = node.inputs[0]
    *others, last = indices
    for axis in others:
        value = make("Gather", value, indices[axis], axis=axis)
    make.into(name_of(node.outputs[0]), "Gather", value, indices[last], axis=last)


def _chosen(editor: Editor, node: ir.Node) -> dict[int, np.ndarray] | None:
    """The indices that a `Slice` takes along each axis; None unless they are constant."""
    known = (editor.value(value) for value in node.inputs[1:])
    parts = [part.tolist() for part in known if part is not None]
    shape = editor.shape(node.inputs[0])
    if shape is None or len(parts) < len(node.inputs) - 1:
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


def _absolute(editor: Editor, node: ir.Node, make: NodeMaker) -> None:
    if editor.dtype(node.inputs[0]) == ir.DataType.INT32:
        zero = make.constant(np.array(0, "int32"), "zero")
        negative = make("Less", node.inputs[0], zero)
        make.into(name_of(node.outputs[0]), "Where", negative, make("Sub", zero, node.inputs[0]), node.inputs[0])


def _narrowed(editor: Editor, node: ir.Node, make: NodeMaker) -> None:
    """Indices of `TopK`, which are of int64, become int32 by a lookup in their own numbers."""
    indices, to = node.inputs[0], node.attributes.get_int("to")
    source = None if indices is None else indices.producer()
    if source is None or source.op_type != "TopK" or indices is not source.outputs[1] or to != ir.DataType.INT32:
        return
    shape, axis = editor.shape(source.inputs[0]), source.attributes.get_int("axis", -1)
    size = None if shape is None else shape[axis]
    if size is not None:
        numbers = make.constant(np.arange(size, dtype="int32"), "numbers")
        make.into(name_of(node.outputs[0]), "Gather", numbers, node.inputs[0], axis=0)


def _rounded(editor: Editor, node: ir.Node, make: NodeMaker) -> None:
    """A half goes to the even neighbor: up from an odd floor, and down to an even one."""
    if editor.dtype(node.inputs[0]) != ir.DataType.FLOAT:
        return
    half, two = (make.constant(np.array(value, "float32"), name) for value, name in ((0.5, "half"), (2, "two")))
    floor = make("Floor", node.inputs[0])
    rest = make("Sub", node.inputs[0], floor)
    above, least = (_number(make, make(op, rest, half)) for op in ("Greater", "GreaterOrEqual"))
    is_odd = make("Sub", floor, make("Mul", make("Floor", make("Mul", floor, half)), two))
    up = make("Add", above, make("Mul", is_odd, make("Sub", least, above)))
    make.into(name_of(node.outputs[0]), "Add", floor, up)


def _number(make: NodeMaker, value: ir.Value | None) -> ir.Value:
    return make("Cast", value, to=ir.DataType.FLOAT)


_RULES: dict[str, Callable[[Editor, ir.Node, NodeMaker], None]] = {
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
    makers = []
    for node in editor.nodes("Neg", "Pad"):
        if editor.dtype(node.inputs[0]) == ir.DataType.INT32:
            makers.append(make := editor.making(node))
            if node.op_type == "Pad":
                _padded(editor, node, make)
            else:
                zero = make.constant(np.array(0, "int32"), "zero")
                make.into(name_of(node.outputs[0]), "Sub", zero, node.inputs[0])
    editor.replace(*makers)


def _padded(editor: Editor, node: ir.Node, make: NodeMaker) -> None:
    shape, pads = editor.shape(node.inputs[0]), editor.value(node.inputs[1])
    filler = node.inputs[2] if len(node.inputs) > 2 else None
    value, mode = np.zeros((), "int32") if filler is None else editor.value(filler), node.attributes.get_string("mode")
    if shape is None or pads is None or value is None or mode not in (None, "constant") or len(node.inputs) > 3:
        return
    sizes, result = [each for each in shape if each is not None], node.inputs[0]
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
            make.into(name_of(node.outputs[0]), "Concat", *joined, axis=axis)
