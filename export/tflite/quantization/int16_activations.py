"""Activations of 16 bits in TFLite files: what TensorFlow's quantizer needs for them, and what is mended in its files.

LiteRT's kernels of 16 bits take no zero point, a bias of 64 bits, and a sigmoid of the scale 1/32768. The quantizer makes
ranges symmetric, but writes biases of 32 bits, zero points of -1 or 0 as it rounds half a step, and sigmoids of the scale
1/65536. It quantizes operators that have no such kernel too, and leaves inputs and outputs float.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.export.tflite.graph import Graph, graphs
from keras_transformer.export.tflite.tree import add_buffer, indices, schema

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import ModelT, OperatorT, QuantizationParametersT

# The scale of a sigmoid, which its kernel has fixed, and what the quantizer takes it for.
SIGMOID = 1 / 32768
_TAKEN_FOR_SIGMOID = np.float32(1 / 65536)
# Operators that the quantizer quantizes and whose kernels take no 16 bits.
WITHOUT_KERNEL = frozenset(
    [
        *("SQUARED_DIFFERENCE", "RELU_N1_TO_1", "HARD_SWISH", "LOG_SOFTMAX", "L2_NORMALIZATION"),
        *("SPACE_TO_DEPTH", "DEPTH_TO_SPACE", "SCATTER_ND", "ARG_MAX", "ARG_MIN"),
        *("EQUAL", "NOT_EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL"),
    ]
)
# Of these, those whose constants the quantizer would make of 8 bits, beside activations of 16.
_WITH_CONSTANTS = ("ADD", "MUL", "SUB", "DIV")
_BIASES = {"CONV_2D": 2, "DEPTHWISE_CONV_2D": 2, "FULLY_CONNECTED": 2, "TRANSPOSE_CONV": 3}
_LEVELS = 32767
# How near the exponent of a scale is to a whole number where LiteRT takes it for a power of two, and a factor that ends it.
_NEAR, _WIDER = 2e-3, 1.003


def symmetric(least: float, largest: float) -> tuple[float, float]:
    """A range with 0 in its middle, whose scale is no power of two: kernels of sums of such scales take few of them.

    Example:

    >>> symmetric(-0.25, 0.75), symmetric(-1.0, 1.0)
    ((-0.75, 0.75), (-1.003, 1.003))
    """
    end = max(largest, -least)
    exponent = math.log2(2 * end / 65535) if end else 0.5
    end *= _WIDER if abs(exponent - round(exponent)) < _NEAR else 1.0
    return -end, end


def step(least: float, largest: float) -> tuple[float, float]:
    """The scale and the zero point of a range, as the quantizer chooses them."""
    return 2 * symmetric(least, largest)[1] / 65535, 0.0


def results_without_kernel(model: ModelT) -> set[str]:
    """The names of what operators compute that have no kernel of 16 bits, or none with a constant of 8 bits."""
    found: set[str] = set()
    for graph in graphs(model):
        for operator in graph.subgraph.operators:
            kind = graph.kind(operator)
            is_by_constant = kind == "BATCH_MATMUL" and any(map(graph.is_constant, indices(operator.inputs)))
            if kind in WITHOUT_KERNEL or is_by_constant:
                found |= {graph.name(index) for index in indices(operator.outputs)}
    return found


def quantize_constants(model: ModelT, floats: set[str]) -> None:
    """Stores the constants of sums and products of activations in 16 bits, of which the quantizer keeps the scale.

    Args:
        model: `ModelT` of the float file, changed in place.
        floats: names of the results that stay float.
    """
    for graph in graphs(model):
        known: dict[int, int] = {}
        for operator in list(graph.subgraph.operators):
            if graph.kind(operator) not in _WITH_CONSTANTS or graph.name(int(operator.outputs[0])) in floats:
                continue
            inputs = [_in_16_bits(graph, index, known) for index in indices(operator.inputs)]
            operator.inputs = np.array(inputs, "int32")


def _in_16_bits(graph: Graph, index: int, known: dict[int, int]) -> int:
    """A tensor that is computed from a constant of integers, or an activation itself."""
    if not graph.is_constant(index) or graph.type(index) != "FLOAT32":
        return index
    if index not in known:
        values = np.asarray(graph.value(index))
        _, end = symmetric(0.0, float(np.abs(values).max(initial=0.0)) or 1.0)
        parameters = _parameters(end / _LEVELS)
        codes = np.asarray(np.round(values / parameters.scale[0]).astype("int16"))
        name = graph.name(index)
        stored = graph.add_constant(f"{name}/int16", "INT16", codes, parameters)
        known[index] = graph.add_tensor(f"{name}/float", "FLOAT32", values.shape)
        graph.insert(0, "DEQUANTIZE", (stored,), (known[index],))
    return known[index]


def _parameters(scale: float) -> QuantizationParametersT:
    parameters = schema().QuantizationParametersT()
    parameters.scale, parameters.zeroPoint = np.array([scale], "float32"), np.array([0], "int64")
    return parameters


def mend(model: ModelT) -> None:
    """Gives a file of the quantizer the scales, zero points and biases that LiteRT's kernels take.

    Args:
        model: `ModelT` of the quantized file, changed in place.
    """
    for graph in graphs(model):
        for index, tensor in enumerate(graph.tensors):
            parameters = tensor.quantization
            if graph.type(index) == "INT16" and parameters is not None:
                parameters.zeroPoint = np.zeros_like(parameters.zeroPoint)
                is_sigmoid = parameters.scale == _TAKEN_FOR_SIGMOID
                parameters.scale = np.where(is_sigmoid, SIGMOID, parameters.scale).astype("float32")
        for index in dict.fromkeys(_narrow_biases(graph)):
            tensor = graph.tensors[index]
            tensor.buffer = add_buffer(model, np.asarray(graph.value(index)).astype("int64"))
            tensor.type = schema().TensorType.INT64


def _narrow_biases(graph: Graph) -> Iterator[int]:
    """The biases of 32 bits beside activations of 16."""
    for operator in graph.subgraph.operators:
        position, inputs = _BIASES.get(graph.kind(operator)), indices(operator.inputs)
        bias = -1 if position is None or len(inputs) <= position else inputs[position]
        if bias >= 0 and graph.type(bias) == "INT32" and graph.type(int(operator.outputs[0])) == "INT16":
            yield bias


def use_integer_ends(model: ModelT, *, inputs: bool, outputs: bool) -> None:
    """Takes the conversions of floats away from the inputs or the outputs of the signatures.

    Args:
        model: `ModelT` of the quantized file, changed in place.
        inputs: bool. Whether float inputs become integers.
        outputs: bool. Whether float outputs do.
    """
    for signature in model.signatureDefs:
        graph = graphs(model)[signature.subgraphIndex].find_uses()
        moved: dict[int, tuple[OperatorT, int]] = {}
        for index in indices(graph.subgraph.inputs) if inputs else ():
            reader = graph.only_reader(index)
            if reader is not None and graph.kind(reader) == "QUANTIZE":
                moved[index] = reader, int(reader.outputs[0])
        for index in indices(graph.subgraph.outputs) if outputs else ():
            maker = graph.makers.get(index)
            if maker is not None and graph.kind(maker) == "DEQUANTIZE" and not graph.readers[index]:
                moved[index] = maker, int(maker.inputs[0])
        removed = [conversion for conversion, _ in moved.values()]
        graph.subgraph.operators[:] = [each for each in graph.subgraph.operators if each not in removed]
        for side in ("inputs", "outputs"):
            ends = [moved[each][1] if each in moved else each for each in indices(getattr(graph.subgraph, side))]
            setattr(graph.subgraph, side, np.array(ends, "int32"))
            for end in getattr(signature, side):
                end.tensorIndex = moved[end.tensorIndex][1] if end.tensorIndex in moved else end.tensorIndex
