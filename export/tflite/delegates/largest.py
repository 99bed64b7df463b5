"""The largest elements of rows, in the form that the GPU delegate computes right.

It takes rows of any length, but reads beyond those whose length is no multiple of 4: its WebGPU kernel then returns elements
that are not there, or divides by zero (ai-edge-litert 2.3). It does not take rows of integers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from keras_transformer.export.tflite.delegates.editor import Editor
from keras_transformer.export.tflite.tree import schema
from keras_transformer.export.tflite.uses import indices

_LANES = 4


def with_full_lanes(editor: Editor, operator: Any) -> bool:
    """Rows of floats whose length is a multiple of 4; what is added is smaller than every number."""
    if editor.graph.kind(operator) != "TOPK_V2":
        return False
    source, count = indices(operator.inputs)
    values, places = indices(operator.outputs)
    shape, kind = editor.shape(source), editor.type(source)
    added = -shape[-1] % _LANES
    if kind not in ("FLOAT32", "INT32") or (kind == "FLOAT32" and not added):
        return False
    rows = int(np.prod(shape[:-1]))
    wide = editor.reshape(source if kind == "FLOAT32" else editor.cast(source, "FLOAT32"), (1, rows, shape[-1]))
    if added:
        sides = editor.constant(np.array([[0, 0], [0, 0], [0, added]], "int32"), "sides")
        least = editor.constant(np.array(np.finfo("float32").min), "least")
        result = ("FLOAT32", (1, rows, shape[-1] + added))
        wide = editor.emit("PADV2", (wide, sides, least), result, schema().PadV2OptionsT(), like=values)
    largest = (1, rows, editor.shape(values)[-1])
    found = [
        editor.graph.add_tensor(f"{editor.name(each)}/largest", type, largest)
        for each, type in ((values, "FLOAT32"), (places, "INT32"))
    ]
    editor.keep(editor.graph.operator("TOPK_V2", (wide, count), found, schema().TopKV2OptionsT()))
    if kind == "FLOAT32":
        editor.reshape(found[0], editor.shape(values), values)
    else:
        editor.cast(editor.reshape(found[0], editor.shape(values)), kind, values)
    editor.reshape(found[1], editor.shape(places), places)
    return True
