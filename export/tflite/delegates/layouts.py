"""Slices, lookups and broadcasts in the forms that the GPU delegate takes."""

from __future__ import annotations

from typing import Any

import numpy as np

from keras_transformer.export.tflite.delegates.editor import Editor
from keras_transformer.export.tflite.tree import schema
from keras_transformer.export.tflite.uses import indices

_MOST_RANK = 4
_BINARY = ("ADD", "SUB", "MUL", "DIV", "MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE")
_FACTORS = {"SUB": 0.0, "ADD": 2.0}  # Of a tensor and itself.
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


def with_wide_padding(editor: Editor, operator: Any) -> bool:
    """A padded vector or matrix as a padded tensor of rank 4, and padded integers as floats."""
    if editor.graph.kind(operator) not in ("PAD", "PADV2"):
        return False
    source, sides, *value = indices(operator.inputs)
    output, kind, known = int(operator.outputs[0]), editor.type(source), editor.value(sides)
    missing = max(_MOST_RANK - len(editor.shape(source)), 0)
    if known is None or kind not in ("FLOAT32", "INT32") or (kind == "FLOAT32" and missing < 2):
        return False
    if kind == "INT32":
        source, value = editor.cast(source, "FLOAT32"), [editor.cast(each, "FLOAT32") for each in value]
    wide = editor.reshape(source, (*(1,) * missing, *editor.shape(source)))
    bounds = editor.constant(np.concatenate([np.zeros((missing, 2), "int32"), known.astype("int32")]), "sides")
    inputs, result = (wide, bounds, *value), ("FLOAT32", (*(1,) * missing, *editor.shape(output)))
    padded = editor.emit(editor.graph.kind(operator), inputs, result, operator.builtinOptions, like=output)
    if kind == "INT32":
        editor.cast(editor.reshape(padded, editor.shape(output)), kind, output)
    else:
        editor.reshape(padded, editor.shape(output), output)
    return True


def with_wide_choices(editor: Editor, operator: Any) -> bool:
    """A choice between tensors that are broadcast, as one between tensors of the shape of the result."""
    if editor.graph.kind(operator) not in ("SELECT", "SELECT_V2"):
        return False
    condition, *cases = indices(operator.inputs)
    output = int(operator.outputs[0])
    shape, kind = editor.shape(output), editor.type(output)
    narrow = [each for each in cases if _is_narrow(editor, each, shape)]
    if not narrow or kind != "FLOAT32":
        return False
    ones = editor.constant(np.ones(shape, "float32"), "ones")
    options = schema().MulOptionsT()
    wide = [
        editor.emit("MUL", (each, ones), (kind, shape), options, like=output) if each in narrow else each
        for each in cases
    ]
    editor.emit("SELECT_V2", (condition, *wide), output, schema().SelectV2OptionsT())
    return True


def _is_narrow(editor: Editor, index: int, shape: tuple[int, ...]) -> bool:
    return editor.shape(index) not in (shape, ()) or (editor.shape(index) == () and not editor.graph.is_constant(index))


def without_equal_operands(editor: Editor, operator: Any) -> bool:
    """An operator of a tensor and itself, as one of the tensor alone: an operator may not read a tensor twice."""
    inputs, kind, output = indices(operator.inputs), editor.graph.kind(operator), int(operator.outputs[0])
    if len(inputs) != 2 or inputs[0] != inputs[1] or getattr(operator.builtinOptions, "fusedActivationFunction", False):
        return False
    if kind in ("LOGICAL_AND", "LOGICAL_OR", "MAXIMUM", "MINIMUM"):
        editor.reshape(inputs[0], editor.shape(output), output)
    elif kind in _FACTORS and editor.type(output) == "FLOAT32":
        factor = editor.constant(np.array(_FACTORS[kind], "float32"), "factor")
        editor.emit("MUL", (inputs[0], factor), output, schema().MulOptionsT())
    elif kind == "MUL" and editor.type(output) == "FLOAT32":
        editor.emit("SQUARE", inputs[:1], output, schema().SquareOptionsT())
    else:
        return False
    return True


def with_ranks_of_constants(editor: Editor, operator: Any) -> bool:
    """A constant vector beside a tensor of rank 4, as a constant of rank 4 with the same values."""
    kind, output = editor.graph.kind(operator), int(operator.outputs[0])
    rank = len(editor.shape(output))
    if kind not in _BINARY or rank != _MOST_RANK:
        return False
    inputs = indices(operator.inputs)
    changed = [_of_rank(editor, each, rank) for each in inputs]
    if list(inputs) == changed:
        return False
    operator.inputs = np.array(changed, "int32")
    editor.keep(operator)
    return True


def _of_rank(editor: Editor, index: int, rank: int) -> int:
    shape = editor.shape(index)
    if not editor.graph.is_constant(index) or not 0 < len(shape) < rank:
        return index
    tensor = editor.graph.tensors[index]
    name = editor.name(index)
    wide = (*(1,) * (rank - len(shape)), *shape)
    return editor.graph.add_tensor(f"{name}/rank_{rank}", editor.type(index), wide, tensor.buffer)


def without_boolean_slices(editor: Editor, operator: Any) -> bool:
    """A slice of booleans as one of numbers."""
    output = int(operator.outputs[0])
    if editor.graph.kind(operator) not in ("STRIDED_SLICE", "SLICE") or editor.type(output) != "BOOL":
        return False
    source, *bounds = indices(operator.inputs)
    number = editor.cast(source, "FLOAT32")
    inputs, shape = (number, *bounds), editor.shape(output)
    sliced = editor.emit(editor.graph.kind(operator), inputs, ("FLOAT32", shape), operator.builtinOptions, like=output)
    zero = editor.constant(np.zeros((), "float32"), "zero")
    editor.emit("GREATER", (sliced, zero), output, schema().GreaterOptionsT())
    return True


def with_own_outputs(editor: Editor) -> int:
    """Copies the inputs and constants that a graph returns as they are, which the delegate does not; returns how many."""
    graph, renamed = editor.graph, {}
    made = {index for operator in graph.subgraph.operators for index in indices(operator.outputs)}
    for index in dict.fromkeys(indices(graph.subgraph.outputs)):
        if index not in made:
            options = schema().ReshapeOptionsT()
            options.newShape = np.array(editor.shape(index), "int32")
            name = editor.name(index)
            renamed[index] = graph.add_tensor(f"{name}/copy", editor.type(index), editor.shape(index))
            shape = editor.constant(np.array(editor.shape(index), "int32"), "shape")
            copy = graph.operator("RESHAPE", (index, shape), (renamed[index],), options)
            graph.subgraph.operators.append(copy)
    graph.subgraph.outputs = np.array([renamed.get(each, each) for each in indices(graph.subgraph.outputs)], "int32")
    number = next(index for index, each in enumerate(graph.model.subgraphs) if each is graph.subgraph)
    for signature in graph.model.signatureDefs or ():
        for output in signature.outputs if signature.subgraphIndex == number else ():
            output.tensorIndex = renamed.get(output.tensorIndex, output.tensorIndex)
    return len(renamed)
