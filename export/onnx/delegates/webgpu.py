"""Operators that onnxruntime-web or Core ML's converter lack or compute wrong, as others that they have."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from keras_transformer.export.onnx.delegates.editor import Editor
from keras_transformer.export.onnx.graph import NodeMaker, name_of

# Channels are read four at a time, or three.
_FOUR, _THREE = 4, 3


def without_one_hots(editor: Editor) -> None:
    """Replaces each `OneHot` of known depth by a comparison with the numbers below it, in 32 bits.

    Negative indices give rows without a one, as in Keras; ONNX counts them from the end.

    Args:
        editor: `Editor` of a graph of fixed shapes.
    """
    makers = [_comparison(editor, node) for node in editor.nodes("OneHot")]
    editor.replace(*[make for make in makers if make is not None])


def _comparison(editor: Editor, node: ir.Node) -> NodeMaker | None:
    """Nodes in the place of a `OneHot`, or None where its depth or a shape is not known."""
    indices, depth, values = node.inputs
    count, pair, shape = editor.value(depth), editor.value(values), editor.shape(indices)
    if count is None or pair is None or shape is None:
        return None
    make, axis = editor.making(node), node.attributes.get_int("axis", -1) % (len(shape) + 1)
    aligned = [1] * (len(shape) + 1)
    aligned[axis] = int(count.reshape(()))
    numbers = make.constant(np.arange(aligned[axis], dtype="int32").reshape(aligned), "numbers")
    short = make("Cast", indices, to=ir.DataType.INT32)
    wide = make("Unsqueeze", short, make.constant(np.array([axis]), "axis"))
    hits = make("Equal", wide, numbers)
    off, on = (make.constant(number, label) for number, label in zip(pair, ("off", "on"), strict=True))
    make.into(name_of(node.outputs[0]), "Where", hits, on, off)
    return make


def with_padded_channels(editor: Editor) -> None:
    """Pads channels of zeros to a multiple of four.

    The shader of onnxruntime-web 1.31 for `Conv` returns other numbers where the channels of the input are a multiple of
    three, but not three and no multiple of four, and those of the output a multiple of four.

    Args:
        editor: `Editor` of a graph of fixed shapes.
    """
    for node in editor.nodes("Conv"):
        shape, groups = editor.shape(node.inputs[1]), node.attributes.get_int("group", 1)
        out, channels = shape[:2] if shape else (None, None)
        if shape is None or out is None or channels is None or groups > 1:
            continue
        if channels % _THREE or channels == _THREE or channels % _FOUR == 0 or out % _FOUR:
            continue
        make = editor.making(node)
        pads = np.zeros((2, len(shape)), "int64")
        pads[1, 1] = -channels % _FOUR
        amount = make.constant(pads.reshape(-1), "pads")
        for position, value in enumerate(node.inputs[:2]):
            node.replace_input_with(position, make("Pad", value, amount))
        make.insert()
