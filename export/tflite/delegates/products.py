"""Products of batches of matrices, in the form that the GPU delegate computes right.

It takes batches that are broadcast, but leaves out columns of the result where their number is no multiple of 4
(ai-edge-litert 2.3).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from keras_transformer.export.tflite.delegates.editor import Editor
from keras_transformer.export.tflite.tree import schema
from keras_transformer.export.tflite.uses import indices


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
