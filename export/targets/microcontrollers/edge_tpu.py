"""Google's Edge TPU: the rules for the files that its compiler takes. Neither compiler nor simulator runs here."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from keras_transformer.export.quantization.calibrated import FullInt8
from keras_transformer.export.runtime.libraries import TFLITE
from keras_transformer.export.targets.microcontrollers.operators import node_of
from keras_transformer.export.targets.target import Arrays, Measured, NoAcceleratorError, Node, Target
from keras_transformer.export.targets.tflite_rules import graph_of
from keras_transformer.export.tflite.graph import Graph
from keras_transformer.export.tflite.tree import indices, read_file, signature_of

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import OperatorT

_NO_SIMULATOR = "the compiler of the Edge TPU, edgetpu_compiler, is no Python library"
# As Coral's page "TensorFlow models on the Edge TPU" (coral.ai/docs/edgetpu/models-intro) lists them, limits too.
_OPERATORS_TEXT = """
ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D EXPAND_DIMS FULLY_CONNECTED L2_NORMALIZATION LOGISTIC LSTM
MAXIMUM MAX_POOL_2D MEAN MINIMUM MUL PACK PAD PRELU QUANTIZE REDUCE_MAX REDUCE_MIN RELU RELU6 RELU_N1_TO_1 RESHAPE
RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR RSQRT SLICE SOFTMAX SPACE_TO_DEPTH SPLIT SQUARED_DIFFERENCE SQUEEZE
STRIDED_SLICE SUB SUM TANH TRANSPOSE TRANSPOSE_CONV UNIDIRECTIONAL_SEQUENCE_LSTM
"""
_OPERATORS = frozenset(_OPERATORS_TEXT.split())
_NOT_FUSED = ("AVERAGE_POOL_2D", "CONCATENATION", "MAX_POOL_2D")
_DILATED = ("CONV_2D", "DEPTHWISE_CONV_2D")
_OF_AXES = ("MEAN", "REDUCE_MAX", "REDUCE_MIN", "SUM")
_INNER_AXES, _LARGEST_SOFTMAX, _CHANNELS_OF_MEAN = 3, 16_000, 4
_ENDS = "take integers: FullInt8(..., input_type='int8', output_type='int8')"


class EdgeTPU(Target):
    """The Edge TPU, by its published rules alone. See `Target`."""

    name = "edgetpu"
    format = TFLITE
    precisions = (FullInt8.mode,)

    def nodes(self, path: pathlib.Path, signature: str) -> int:
        return len(graph_of(read_file(path), signature).subgraph.operators)

    def check(self, path: pathlib.Path, signature: str) -> list[Node]:
        return list(edge_tpu_problems(graph_of(read_file(path), signature)))

    def run(self, path: pathlib.Path, signature: str, cases: Sequence[Arrays], precision: str | None) -> Measured:
        raise NoAcceleratorError(_NO_SIMULATOR)

    def missing_library(self) -> str | None:
        return _NO_SIMULATOR


def edge_tpu_problems(graph: Graph) -> Iterator[Node]:
    """The nodes of a graph that the Edge TPU refuses, each with the first reason.

    From the first of them on, its compiler leaves the graph to the CPU.
    """
    for operator in graph.subgraph.operators:
        found = _problem(graph, operator)
        if found is not None:
            yield node_of(graph, operator, *found)


def _problem(graph: Graph, operator: OperatorT) -> tuple[str, str] | None:
    """`(reason, remedy)` of a node, or None."""
    kind = graph.kind(operator)
    tensors = [each for each in (*indices(operator.inputs), *indices(operator.outputs)) if each >= 0]
    if any(None in signature_of(graph.tensors[each]) for each in tensors):
        return "dynamic shapes", "give the size of every axis in static"
    others = {graph.type(each) for each in tensors if not graph.is_constant(each)} - {"INT8", "UINT8"}
    if others:
        return f"type {min(others).lower()}", _ENDS
    if kind not in _OPERATORS:
        return "operation not supported", ""
    outer = {size for each in tensors if not graph.is_constant(each) for size in graph.shape(each)[:-_INNER_AXES]}
    if outer - {1}:
        return "tensors of more than three axes above 1", "use a batch of 1, and tensors of three axes"
    return _option_problem(graph, operator, kind)


def _option_problem(graph: Graph, operator: OperatorT, kind: str) -> tuple[str, str] | None:
    """What the Edge TPU refuses of the options of an operator that it has."""
    options = operator.builtinOptions
    if kind in _NOT_FUSED and options.fusedActivationFunction:
        return "a fused activation", "use an activation layer behind it"
    if kind in _DILATED and options.dilationWFactor != options.dilationHFactor:
        return "dilations that differ", "use one dilation rate"
    if kind == "CONCATENATION" and not _pads_with_zeros(graph, operator):
        return "a constant in a concatenation", "concatenate results, or one of them with zeros"
    if kind == "STRIDED_SLICE" and (options.ellipsisMask or options.newAxisMask or not _all_ones(graph, operator)):
        return "slices with steps or new axes", "slice a range, then reshape"
    return _size_problem(graph, operator, kind)


def _size_problem(graph: Graph, operator: OperatorT, kind: str) -> tuple[str, str] | None:
    """What the Edge TPU refuses of the sizes and the axes of an operator that it has."""
    shape = graph.shape(int(operator.inputs[0]))
    if kind == "SOFTMAX" and (shape[-1] > _LARGEST_SOFTMAX or set(shape[:-1]) - {1}):
        return f"softmax of more than one row, or of more than {_LARGEST_SOFTMAX:,} numbers", "return the logits"
    if kind in _OF_AXES and len(shape) > 1:
        axes = _axes(graph, operator, len(shape))
        if axes is None or 0 in axes:
            return "reduction of the batch", "reduce other axes"
        if kind == "MEAN" and len(shape) - 1 in axes and shape[-1] % _CHANNELS_OF_MEAN:
            return "a mean of channels whose number is no multiple of 4", "use a multiple of 4"
    if kind == "PACK" and operator.builtinOptions.axis % (len(shape) + 1) == 0:
        return "packing in the batch", "stack another axis"
    if kind == "PAD" and _pads_batch(graph, operator):
        return "padding of the batch", "pad other axes"
    return None


def _all_ones(graph: Graph, operator: OperatorT) -> bool:
    steps = graph.small_value(int(operator.inputs[3]))
    return steps is not None and bool((steps == 1).all())


def _pads_with_zeros(graph: Graph, operator: OperatorT) -> bool:
    """Whether a concatenation has no constant, or is one of a result and of zeros."""
    parts = indices(operator.inputs)
    constants = [each for each in parts if graph.is_constant(each)]
    if not constants:
        return True
    value = graph.small_value(constants[0])
    return len(parts) == 2 and len(constants) == 1 and value is not None and not value.any()


def _axes(graph: Graph, operator: OperatorT, rank: int) -> set[int] | None:
    """The axes of a reduction; None where they are computed."""
    axes = graph.small_value(int(operator.inputs[1]))
    return None if axes is None else {int(axis) % rank for axis in axes.reshape(-1)}


def _pads_batch(graph: Graph, operator: OperatorT) -> bool:
    sides = graph.small_value(int(operator.inputs[1]))
    return sides is None or bool(sides[0].any())
