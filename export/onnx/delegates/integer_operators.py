"""Operators of integers that Hexagon refuses, as others that it has."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto

from keras_transformer.export.onnx.delegates.editor import Editor
from keras_transformer.export.onnx.node_maker import NodeMaker


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
