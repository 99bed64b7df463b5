"""Dilated convolutions over sequences as one operator each.

TensorFlow computes them in parts, which the converter puts together again where the batch is fixed, and nowhere else.
XNNPACK has no kernel for the parts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from keras_transformer.export.tflite.graph import Graph, graphs
from keras_transformer.export.tflite.tree import indices, schema, signature_of

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import ModelT, OperatorT


class _Parts(NamedTuple):
    """The operators of a dilated convolution, in their order, and those that add a bias or None."""

    split: OperatorT
    row: OperatorT
    convolution: OperatorT
    reshape: OperatorT
    joined: OperatorT
    bias: OperatorT | None


def join_dilations(model: ModelT) -> None:
    """Joins the parts of dilated convolutions of sequences of fixed length, with the bias behind them.

    Args:
        model: `ModelT` of a float file, changed in place.
    """
    for graph in graphs(model):
        graph.find_uses()
        found = [parts for each in graph.subgraph.operators if (parts := _parts_of(graph, each)) is not None]
        for parts in found:
            _join(graph, parts)
        dropped = {id(each) for parts in found for each in (parts.split, parts.joined, parts.bias)}
        graph.subgraph.operators[:] = [each for each in graph.subgraph.operators if id(each) not in dropped]


def _parts_of(graph: Graph, split: OperatorT) -> _Parts | None:
    """The operators from one that splits a sequence, or None if they are not those of a dilated convolution."""
    if graph.kind(split) != "SPACE_TO_BATCH_ND" or None in signature_of(graph.tensors[int(split.inputs[0])])[1:]:
        return None
    chain = [split]
    for kinds in (("EXPAND_DIMS",), ("CONV_2D",), ("RESHAPE", "SQUEEZE"), ("BATCH_TO_SPACE_ND",)):
        reader = graph.only_reader(int(chain[-1].outputs[0]))
        if reader is None or graph.kind(reader) not in kinds or reader.inputs[0] != chain[-1].outputs[0]:
            return None
        chain.append(reader)
    _, row, convolution, reshape, joined = chain
    blocks, sides = ([graph.value(int(each.inputs[position])) for each in (split, joined)] for position in (1, 2))
    if any(each is None or each.size != 1 for each in blocks) or any(each is None or each.any() for each in sides):
        return None
    options, axis = convolution.builtinOptions, graph.value(int(row.inputs[1]))
    is_plain = (options.strideW, options.strideH, options.dilationWFactor, options.dilationHFactor) == (1, 1, 1, 1)
    is_row = axis is not None and axis.reshape(-1).tolist() in ([1], [-3])
    if not is_plain or not is_row or options.padding != schema().Padding.VALID or options.fusedActivationFunction:
        return None
    return _Parts(split, row, convolution, reshape, joined, _bias_of(graph, convolution, joined))


def _bias_of(graph: Graph, convolution: OperatorT, joined: OperatorT) -> OperatorT | None:
    """The sum with a bias behind a convolution that has none, or None."""
    result = int(joined.outputs[0])
    operator, own = graph.only_reader(result), graph.value(int(convolution.inputs[2]))
    if operator is None or graph.kind(operator) != "ADD" or own is None or own.any():
        return None
    biases = [index for index in indices(operator.inputs) if index != result]
    is_bias = len(biases) == 1 and graph.is_constant(biases[0]) and graph.shape(biases[0]) == own.shape
    return operator if is_bias else None


def _join(graph: Graph, parts: _Parts) -> None:
    source, result = int(parts.split.inputs[0]), int(parts.joined.outputs[0])
    parts.convolution.builtinOptions.dilationWFactor = int(np.asarray(graph.value(int(parts.split.inputs[1]))).item())
    if parts.bias is not None:
        (bias,) = (index for index in indices(parts.bias.inputs) if index != result)
        parts.convolution.inputs = np.array([*parts.convolution.inputs[:2], bias], "int32")
        parts.convolution.builtinOptions.fusedActivationFunction = parts.bias.builtinOptions.fusedActivationFunction
        result = int(parts.bias.outputs[0])
    sizes = signature_of(graph.tensors[result])
    for operator, like in ((parts.row, source), (parts.convolution, result)):
        batch, *others = signature_of(graph.tensors[like])
        _set_sizes(graph, int(operator.outputs[0]), [batch, 1, *others])
    parts.row.inputs = np.array([source, *parts.row.inputs[1:]], "int32")
    target = graph.constant(np.array([-1 if size is None else size for size in sizes], "int32"), "shape")
    options = schema().ReshapeOptionsT()
    options.newShape = np.array([-1 if size is None else size for size in sizes], "int32")
    joined = graph.operator("RESHAPE", (int(parts.convolution.outputs[0]), target), (result,), options)
    position = next(at for at, each in enumerate(graph.subgraph.operators) if each is parts.reshape)
    graph.subgraph.operators[position] = joined


def _set_sizes(graph: Graph, index: int, sizes: list[int | None]) -> None:
    tensor = graph.tensors[index]
    tensor.shape = np.array([size or 1 for size in sizes], "int32")
    tensor.shapeSignature = np.array([-1 if size is None else size for size in sizes], "int32")
