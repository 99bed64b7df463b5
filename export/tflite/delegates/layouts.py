"""Slices, lookups and broadcasts in the forms that the GPU delegate takes."""

from __future__ import annotations

from typing import Any

import numpy as np

from keras_transformer.export.tflite.delegates.editor import Editor
from keras_transformer.export.tflite.tree import schema
from keras_transformer.export.tflite.uses import indices

_MASKS = ("beginMask", "endMask", "ellipsisMask", "newAxisMask", "shrinkAxisMask")


def without_shrunk_axes(editor: Editor, operator: Any) -> bool:
    """`x[:, 0]` as `x[:, 0:1]` and a reshape."""
    options = operator.builtinOptions
    if editor.graph.kind(operator) != "STRIDED_SLICE" or not options.shrinkAxisMask:
        return False
    source, *bounds = indices(operator.inputs)
    values = [editor.value(each) for each in bounds]
    if options.ellipsisMask or options.newAxisMask or any(each is None for each in values):
        return False
    begin, end, strides = (np.array(each) for each in values)
    shape, output = editor.shape(source), int(operator.outputs[0])
    sizes = []
    for axis, size in enumerate(shape):
        if axis >= len(begin):
            sizes.append(size)
            continue
        if options.shrinkAxisMask >> axis & 1:
            begin[axis] += size if begin[axis] < 0 else 0
            end[axis], strides[axis] = begin[axis] + 1, 1
            first = slice(int(begin[axis]), int(end[axis]))
        else:
            first = slice(
                None if options.beginMask >> axis & 1 else int(begin[axis]),
                None if options.endMask >> axis & 1 else int(end[axis]),
                int(strides[axis]),
            )
        sizes.append(len(range(*first.indices(size))))
    changed = schema().StridedSliceOptionsT()
    for mask in _MASKS:
        setattr(changed, mask, getattr(options, mask) & ~options.shrinkAxisMask)
    changed.offset = False
    constants = [editor.constant(each.astype("int32"), "slice") for each in (begin, end, strides)]
    sliced = editor.emit("STRIDED_SLICE", (source, *constants), (editor.type(source), sizes), changed, like=output)
    editor.reshape(sliced, editor.shape(output), output)
    return True


def with_flat_indices(editor: Editor, operator: Any) -> bool:
    """A lookup by a matrix of indices as one by a list of them."""
    if editor.graph.kind(operator) != "GATHER" or operator.builtinOptions.batchDims:
        return False
    table, index = indices(operator.inputs)
    if len(editor.shape(index)) == 1:
        return False
    output, axis = int(operator.outputs[0]), operator.builtinOptions.axis
    count, sizes = int(np.prod(editor.shape(index))), editor.shape(table)
    flat = editor.reshape(index, (count,))
    shape = (*sizes[:axis], count, *sizes[axis + 1 :])
    options = schema().GatherOptionsT()
    options.axis = axis
    found = editor.emit("GATHER", (table, flat), (editor.type(table), shape), options, like=output)
    editor.reshape(found, editor.shape(output), output)
    return True


def without_batches_of_lookups(editor: Editor, operator: Any) -> bool:
    """A lookup in each row by its own indices, as a product with rows of zeros and a one."""
    if editor.graph.kind(operator) != "GATHER" or not operator.builtinOptions.batchDims:
        return False
    table, index = indices(operator.inputs)
    batch, output = operator.builtinOptions.batchDims, int(operator.outputs[0])
    if operator.builtinOptions.axis != batch or editor.type(table) != "FLOAT32" or editor.type(index) != "INT32":
        return False
    sizes = editor.shape(table)
    rows, size = int(np.prod(sizes[:batch])), sizes[batch]
    width, count = int(np.prod(sizes[batch + 1 :])), int(np.prod(editor.shape(index)[batch:]))
    chosen = editor.reshape(index, (rows, count, 1))
    order = editor.constant(np.arange(size, dtype="int32").reshape(1, 1, size), "order")
    equal = editor.emit("EQUAL", (chosen, order), ("BOOL", (rows, count, size)), schema().EqualOptionsT(), like=output)
    ones = editor.cast(equal, "FLOAT32")
    flat = editor.reshape(table, (rows, size, width))
    options = schema().BatchMatMulOptionsT()
    found = editor.emit("BATCH_MATMUL", (ones, flat), ("FLOAT32", (rows, count, width)), options, like=output)
    editor.reshape(found, editor.shape(output), output)
    return True


def without_broadcasts(editor: Editor, operator: Any) -> bool:
    """A broadcast as a product with ones, or a sum with zeros."""
    if editor.graph.kind(operator) != "BROADCAST_TO":
        return False
    source, output = int(operator.inputs[0]), int(operator.outputs[0])
    shape, kind = editor.shape(output), editor.type(output)
    if kind == "FLOAT32":
        ones = editor.constant(np.ones(shape, "float32"), "ones")
        editor.emit("MUL", (source, ones), output, schema().MulOptionsT())
    elif kind == "INT32":
        zeros = editor.constant(np.zeros(shape, "int32"), "zeros")
        editor.emit("ADD", (source, zeros), output, schema().AddOptionsT())
    elif kind == "BOOL":
        number = editor.cast(source, "FLOAT32")
        ones = editor.constant(np.ones(shape, "float32"), "ones")
        wide = editor.emit("MUL", (number, ones), ("FLOAT32", shape), schema().MulOptionsT(), like=output)
        zero = editor.constant(np.zeros((), "float32"), "zero")
        editor.emit("GREATER", (wide, zero), output, schema().GreaterOptionsT())
    else:
        return False
    return True
