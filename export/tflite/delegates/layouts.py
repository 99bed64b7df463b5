"""Slices, lookups and broadcasts in the forms that the GPU delegate takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.export.tflite.graph import Graph
from keras_transformer.export.tflite.tree import indices, schema

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import OperatorT

_MOST_RANK = 4
_BINARY = ("ADD", "SUB", "MUL", "DIV", "MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE")
_FACTORS = {"SUB": 0.0, "ADD": 2.0}  # Of a tensor and itself.
_MASKS = ("beginMask", "endMask", "ellipsisMask", "newAxisMask", "shrinkAxisMask")


def without_shrunk_axes(graph: Graph, operator: OperatorT) -> bool:
    """`x[:, 0]` as `x[:, 0:1]` and a reshape."""
    options = operator.builtinOptions
    if graph.kind(operator) != "STRIDED_SLICE" or not options.shrinkAxisMask:
        return False
    source, *bounds = indices(operator.inputs)
    values = [graph.small_value(each) for each in bounds]
    if options.ellipsisMask or options.newAxisMask or any(each is None for each in values):
        return False
    begin, end, strides = (np.array(each) for each in values)
    shape, output = graph.shape(source), int(operator.outputs[0])
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
    constants = [graph.constant(each.astype("int32"), "slice") for each in (begin, end, strides)]
    sliced = graph.emit("STRIDED_SLICE", (source, *constants), (graph.type(source), sizes), changed, like=output)
    graph.emit_reshape(sliced, graph.shape(output), output)
    return True


def with_flat_indices(graph: Graph, operator: OperatorT) -> bool:
    """A lookup by a matrix of indices as one by a list of them."""
    if graph.kind(operator) != "GATHER" or operator.builtinOptions.batchDims:
        return False
    table, index = indices(operator.inputs)
    if len(graph.shape(index)) == 1:
        return False
    output, axis = int(operator.outputs[0]), operator.builtinOptions.axis
    count, sizes = int(np.prod(graph.shape(index))), graph.shape(table)
    flat = graph.emit_reshape(index, (count,))
    shape = (*sizes[:axis], count, *sizes[axis + 1 :])
    options = schema().GatherOptionsT()
    options.axis = axis
    found = graph.emit("GATHER", (table, flat), (graph.type(table), shape), options, like=output)
    graph.emit_reshape(found, graph.shape(output), output)
    return True


def without_batches_of_lookups(graph: Graph, operator: OperatorT) -> bool:
    """A lookup in each row by its own indices, as a product with rows of zeros and a one."""
    if graph.kind(operator) != "GATHER" or not operator.builtinOptions.batchDims:
        return False
    table, index = indices(operator.inputs)
    batch, output = operator.builtinOptions.batchDims, int(operator.outputs[0])
    if operator.builtinOptions.axis != batch or graph.type(table) != "FLOAT32" or graph.type(index) != "INT32":
        return False
    sizes = graph.shape(table)
    rows, size = int(np.prod(sizes[:batch])), sizes[batch]
    width, count = int(np.prod(sizes[batch + 1 :])), int(np.prod(graph.shape(index)[batch:]))
    chosen = graph.emit_reshape(index, (rows, count, 1))
    order = graph.constant(np.arange(size, dtype="int32").reshape(1, 1, size), "order")
    equal = graph.emit("EQUAL", (chosen, order), ("BOOL", (rows, count, size)), schema().EqualOptionsT(), like=output)
    ones = graph.emit_cast(equal, "FLOAT32")
    flat = graph.emit_reshape(table, (rows, size, width))
    options = schema().BatchMatMulOptionsT()
    found = graph.emit("BATCH_MATMUL", (ones, flat), ("FLOAT32", (rows, count, width)), options, like=output)
    graph.emit_reshape(found, graph.shape(output), output)
    return True


def without_broadcasts(graph: Graph, operator: OperatorT) -> bool:
    """A broadcast as a product with ones, or a sum with zeros."""
    if graph.kind(operator) != "BROADCAST_TO":
        return False
    source, output = int(operator.inputs[0]), int(operator.outputs[0])
    shape, kind = graph.shape(output), graph.type(output)
    if kind == "FLOAT32":
        ones = graph.constant(np.ones(shape, "float32"), "ones")
        graph.emit("MUL", (source, ones), output, schema().MulOptionsT())
    elif kind == "INT32":
        zeros = graph.constant(np.zeros(shape, "int32"), "zeros")
        graph.emit("ADD", (source, zeros), output, schema().AddOptionsT())
    elif kind == "BOOL":
        number = graph.emit_cast(source, "FLOAT32")
        ones = graph.constant(np.ones(shape, "float32"), "ones")
        wide = graph.emit("MUL", (number, ones), ("FLOAT32", shape), schema().MulOptionsT(), like=output)
        zero = graph.constant(np.zeros((), "float32"), "zero")
        graph.emit("GREATER", (wide, zero), output, schema().GreaterOptionsT())
    else:
        return False
    return True


def with_wide_padding(graph: Graph, operator: OperatorT) -> bool:
    """A padded vector or matrix as a padded tensor of rank 4, and padded integers as floats."""
    if graph.kind(operator) not in ("PAD", "PADV2"):
        return False
    source, sides, *value = indices(operator.inputs)
    output, kind, known = int(operator.outputs[0]), graph.type(source), graph.small_value(sides)
    missing = max(_MOST_RANK - len(graph.shape(source)), 0)
    if known is None or kind not in ("FLOAT32", "INT32") or (kind == "FLOAT32" and missing < 2):
        return False
    if kind == "INT32":
        source, value = graph.emit_cast(source, "FLOAT32"), [graph.emit_cast(each, "FLOAT32") for each in value]
    wide = graph.emit_reshape(source, (*(1,) * missing, *graph.shape(source)))
    bounds = graph.constant(np.concatenate([np.zeros((missing, 2), "int32"), known.astype("int32")]), "sides")
    inputs, result = (wide, bounds, *value), ("FLOAT32", (*(1,) * missing, *graph.shape(output)))
    padded = graph.emit(graph.kind(operator), inputs, result, operator.builtinOptions, like=output)
    if kind == "INT32":
        graph.emit_cast(graph.emit_reshape(padded, graph.shape(output)), kind, output)
    else:
        graph.emit_reshape(padded, graph.shape(output), output)
    return True


def with_wide_choices(graph: Graph, operator: OperatorT) -> bool:
    """A choice between tensors that are broadcast, as one between tensors of the shape of the result."""
    if graph.kind(operator) not in ("SELECT", "SELECT_V2"):
        return False
    condition, *cases = indices(operator.inputs)
    output = int(operator.outputs[0])
    shape, kind = graph.shape(output), graph.type(output)
    narrow = [each for each in cases if _is_narrow(graph, each, shape)]
    if not narrow or kind != "FLOAT32":
        return False
    ones = graph.constant(np.ones(shape, "float32"), "ones")
    options = schema().MulOptionsT()
    wide = [
        graph.emit("MUL", (each, ones), (kind, shape), options, like=output) if each in narrow else each
        for each in cases
    ]
    graph.emit("SELECT_V2", (condition, *wide), output, schema().SelectV2OptionsT())
    return True


def _is_narrow(graph: Graph, index: int, shape: tuple[int, ...]) -> bool:
    return graph.shape(index) not in (shape, ()) or (graph.shape(index) == () and not graph.is_constant(index))


def without_equal_operands(graph: Graph, operator: OperatorT) -> bool:
    """An operator of a tensor and itself, as one of the tensor alone: an operator may not read a tensor twice."""
    inputs, kind, output = indices(operator.inputs), graph.kind(operator), int(operator.outputs[0])
    if len(inputs) != 2 or inputs[0] != inputs[1] or getattr(operator.builtinOptions, "fusedActivationFunction", False):
        return False
    if kind in ("LOGICAL_AND", "LOGICAL_OR", "MAXIMUM", "MINIMUM"):
        graph.emit_reshape(inputs[0], graph.shape(output), output)
    elif kind in _FACTORS and graph.type(output) == "FLOAT32":
        factor = graph.constant(np.array(_FACTORS[kind], "float32"), "factor")
        graph.emit("MUL", (inputs[0], factor), output, schema().MulOptionsT())
    elif kind == "MUL" and graph.type(output) == "FLOAT32":
        graph.emit("SQUARE", inputs[:1], output, schema().SquareOptionsT())
    else:
        return False
    return True


def with_ranks_of_constants(graph: Graph, operator: OperatorT) -> bool:
    """A constant vector beside a tensor of rank 4, as a constant of rank 4 with the same values."""
    kind, output = graph.kind(operator), int(operator.outputs[0])
    rank = len(graph.shape(output))
    if kind not in _BINARY or rank != _MOST_RANK:
        return False
    inputs = indices(operator.inputs)
    changed = [_of_rank(graph, each, rank) for each in inputs]
    if list(inputs) == changed:
        return False
    operator.inputs = np.array(changed, "int32")
    graph.emit_operator(operator)
    return True


def _of_rank(graph: Graph, index: int, rank: int) -> int:
    shape = graph.shape(index)
    if not graph.is_constant(index) or not 0 < len(shape) < rank:
        return index
    tensor = graph.tensors[index]
    name = graph.name(index)
    wide = (*(1,) * (rank - len(shape)), *shape)
    return graph.add_tensor(f"{name}/rank_{rank}", graph.type(index), wide, tensor.buffer)


def without_boolean_slices(graph: Graph, operator: OperatorT) -> bool:
    """A slice of booleans as one of numbers."""
    output = int(operator.outputs[0])
    if graph.kind(operator) not in ("STRIDED_SLICE", "SLICE") or graph.type(output) != "BOOL":
        return False
    source, *bounds = indices(operator.inputs)
    number = graph.emit_cast(source, "FLOAT32")
    inputs, shape = (number, *bounds), graph.shape(output)
    sliced = graph.emit(graph.kind(operator), inputs, ("FLOAT32", shape), operator.builtinOptions, like=output)
    zero = graph.constant(np.zeros((), "float32"), "zero")
    graph.emit("GREATER", (sliced, zero), output, schema().GreaterOptionsT())
    return True


def with_own_outputs(graph: Graph) -> int:
    """Copies the inputs and constants that a graph returns as they are, which the delegate does not; returns how many."""
    renamed: dict[int, int] = {}
    made = {index for operator in graph.subgraph.operators for index in indices(operator.outputs)}
    for index in dict.fromkeys(indices(graph.subgraph.outputs)):
        if index not in made:
            options = schema().ReshapeOptionsT()
            options.newShape = np.array(graph.shape(index), "int32")
            name = graph.name(index)
            renamed[index] = graph.add_tensor(f"{name}/copy", graph.type(index), graph.shape(index))
            shape = graph.constant(np.array(graph.shape(index), "int32"), "shape")
            copy = graph.operator("RESHAPE", (index, shape), (renamed[index],), options)
            graph.subgraph.operators.append(copy)
    graph.subgraph.outputs = np.array([renamed.get(each, each) for each in indices(graph.subgraph.outputs)], "int32")
    number = next(index for index, each in enumerate(graph.model.subgraphs) if each is graph.subgraph)
    for signature in graph.model.signatureDefs or ():
        for output in signature.outputs if signature.subgraphIndex == number else ():
            output.tensorIndex = renamed.get(output.tensorIndex, output.tensorIndex)
    return len(renamed)
