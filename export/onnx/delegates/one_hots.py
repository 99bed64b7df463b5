"""Rows with a one as comparisons: neither WebGPU nor Core ML's converter has `OneHot`."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto

from keras_transformer.export.onnx.delegates.editor import Editor


def without_one_hots(editor: Editor) -> None:
    """Replaces each `OneHot` of known depth by a comparison with the numbers below it, in 32 bits.

    Negative indices give rows without a one, as in Keras; ONNX counts them from the end.

    Args:
        editor: `Editor` of a graph of fixed shapes.
    """
    found: dict[str, list[Any]] = {}
    for node in editor.nodes("OneHot"):
        made = _comparison(editor, node)
        if made is not None:
            found[node.output[0]] = made
    editor.replace(found)


def _comparison(editor: Editor, node: Any) -> list[Any] | None:
    """Nodes in the place of a `OneHot`, or None where its depth or a shape is not known."""
    indices, depth, values = node.input
    count, pair, shape = editor.value(depth), editor.value(values), editor.shape(indices)
    if count is None or pair is None or shape is None:
        return None
    make, made = editor.making(node)
    axis = next((each.i for each in node.attribute if each.name == "axis"), -1) % (len(shape) + 1)
    aligned = [1] * (len(shape) + 1)
    aligned[axis] = int(count.reshape(()))
    numbers = make.constant(np.arange(aligned[axis], dtype="int32").reshape(aligned), "numbers")
    short = make("Cast", indices, to=TensorProto.INT32)
    wide = make("Unsqueeze", short, make.constant(np.array([axis]), "axis"))
    hits = make("Equal", wide, numbers)
    off, on = (make.constant(number, label) for number, label in zip(pair, ("off", "on"), strict=True))
    make.into(node.output[0], "Where", hits, on, off)
    return made
