"""Quantization parameters of TFLite files, of 4-bit blocks and of rows, and the precision of block scales in XNNPACK."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.export.tflite.graph import Graph
from keras_transformer.export.tflite.tree import schema

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import QuantizationParametersT


def bfloat16(array: np.ndarray) -> np.ndarray:
    """Rounds float32 values to the precision of bfloat16.

    Example:

    >>> bfloat16(np.array([1.001, 3.0])).tolist()
    [1.0, 3.0]
    """
    bits = array.astype("float32").view("uint32")
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).view("float32")


def block_parameters(
    graph: Graph, name: str, shape: tuple[int, ...], buffer: int, block_size: int
) -> QuantizationParametersT:
    """The quantization parameters of 4-bit blocks with scales in half precision.

    Args:
        graph: `Graph`, to which the tensor of the scales is added.
        name: name of the weight.
        shape: of the scales, `(N, blocks)`.
        buffer: index of their buffer.
        block_size: numbers of a block.
    """
    parameters = schema().QuantizationParametersT()
    parameters.detailsType = schema().QuantizationDetails.BlockwiseQuantization
    parameters.details = schema().BlockwiseQuantizationT()
    parameters.details.scales = graph.add_tensor(f"{name}/scales", "FLOAT16", shape, buffer)
    parameters.details.zeroPoints = -1
    parameters.details.blockSize = block_size
    return parameters


def row_parameters(scale: np.ndarray) -> QuantizationParametersT:
    """The quantization parameters of a matrix with one scale for each row, float32 `(N,)`."""
    parameters = schema().QuantizationParametersT()
    parameters.scale = scale
    parameters.zeroPoint = np.zeros(len(scale), "int64")
    parameters.quantizedDimension = 0
    return parameters
