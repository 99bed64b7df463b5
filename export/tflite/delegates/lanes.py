"""Operators whose kernels work on four numbers at a time, in the form that the GPU delegate computes right.

It takes batches of products that are broadcast, but leaves out columns of the result where their number is no multiple of 4.
It takes the largest elements of rows of any length, but reads beyond those whose length is no multiple of 4: its WebGPU
kernel then returns elements that are not there, or divides by zero. It does not take rows of integers (ai-edge-litert 2.3).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from keras_transformer.export.tflite.delegates.editor import Editor
from keras_transformer.export.tflite.tree import schema
from keras_transformer.export.tflite.uses import indices

_LANES = 4


def with_equal_batches(editor: Editor, operator: Any) -> bool:
    """One product of all rows where one matrix serves all batches, or as many matrices as batches."""
    if editor.graph.kind(operator) != "BATCH_MATMUL":
        return False
    first, second = indices(operator.inputs)
    output = int(operator.outputs[0])
    shape, options = editor.shape(output), operator.builtinOptions
    batches = [_batch(editor, each, len(shape)) for each in (first, second)]
    if batches[0] == batches[1] or editor.type(output) != "FLOAT32":
        return False
    if int(np.prod(batches[1])) == 1 and not options.adjX:
        rows, inner = int(np.prod(editor.shape(first)[:-1])), editor.shape(first)[-1]
        flat = editor.reshape(first, (1, rows, inner))
        matrix = editor.reshape(second, (1, *editor.shape(second)[-2:]))
        found = editor.emit("BATCH_MATMUL", (flat, matrix), ("FLOAT32", (1, rows, shape[-1])), options, like=output)
        editor.reshape(found, shape, output)
        return True
    wide = [_widened(editor, each, shape[:-2]) for each in (first, second)]
    editor.emit("BATCH_MATMUL", wide, output, options)
    return True


def _batch(editor: Editor, index: int, rank: int) -> tuple[int, ...]:
    batch = editor.shape(index)[:-2]
    return (*(1,) * (rank - 2 - len(batch)), *batch)


def _widened(editor: Editor, index: int, batch: tuple[int, ...]) -> int:
    """A tensor of matrices for each of the batches: a product with ones."""
    matrix = editor.shape(index)[-2:]
    aligned = editor.reshape(index, (*_batch(editor, index, len(batch) + 2), *matrix))
    shape = (*batch, *matrix)
    if editor.shape(aligned) == shape:
        return aligned
    ones = editor.constant(np.ones(shape, "float32"), "ones")
    return editor.emit("MUL", (aligned, ones), ("FLOAT32", shape), schema().MulOptionsT(), like=index)


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
