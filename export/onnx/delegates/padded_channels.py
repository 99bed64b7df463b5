"""Convolutions over numbers of channels that onnxruntime-web computes wrong."""

from __future__ import annotations

from typing import Any

import numpy as np

from keras_transformer.export.onnx.delegates.editor import Editor

# Channels are read four at a time, or three.
_FOUR, _THREE = 4, 3


def with_padded_channels(editor: Editor) -> None:
    """Pads channels of zeros to a multiple of four.

    The shader of onnxruntime-web 1.31 for `Conv` returns other numbers where the channels of the input are a multiple of
    three, but not three and no multiple of four, and those of the output a multiple of four.

    Args:
        editor: `Editor` of a graph of fixed shapes.
    """
    found: dict[str, list[Any]] = {}
    for node in editor.nodes("Conv"):
        shape = editor.shape(node.input[1])
        groups = next((each.i for each in node.attribute if each.name == "group"), 1)
        out, channels = shape[:2] if shape else (None, None)
        if shape is None or out is None or channels is None or groups > 1:
            continue
        if channels % _THREE or channels == _THREE or channels % _FOUR == 0 or out % _FOUR:
            continue
        make, made = editor.making(node)
        pads = np.zeros((2, len(shape)), "int64")
        pads[1, 1] = -channels % _FOUR
        amount = make.constant(pads.reshape(-1), "pads")
        node.input[0], node.input[1] = (make("Pad", name, amount) for name in node.input[:2])
        found[node.output[0]] = [*made, node]
    editor.replace(found)
