"""The check of the scales of activations in quantized TFLite files against the ranges that were measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.export.quantization.ranges import check_step
from keras_transformer.export.runtime.libraries import TFLITE
from keras_transformer.export.tflite.graph import graphs
from keras_transformer.export.tflite.quantization import int16_activations, loops
from keras_transformer.export.tflite.tree import size_of

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import ModelT

# Results whose kernels have a scale of their own, as pairs of scale and zero point, by the bits of activations.
_FIXED = {8: ((1 / 256, -128), (1 / 128, 0), (16 / 256, 127)), 16: ((int16_activations.SIGMOID, 0),)}
_INTEGERS = ("INT8", "UINT8", "INT16")


def check_scales(
    model: ModelT,
    ranges: Mapping[tuple[int, int], tuple[float, float]],
    bits: int = 8,
    of_steps: loops.ProductRanges | None = None,
) -> None:
    """Checks that every tensor of integers has the steps of one of the measured ranges, or the fixed ones of its kernel.

    Args:
        model: `ModelT` of the quantized file.
        ranges: those of the float file.
        bits: of the activations.
        of_steps: ranges of the products in loops.

    Raises:
        WeightError: names the tensor.
    """
    step_of = int16_activations.step if bits == 16 else _step
    of_loops = [loops.step(*ends) for pair in (of_steps or {}).values() for ends in pair]
    steps = (step_of(*ends) for ends in ranges.values())
    allowed = np.array([*_FIXED[bits], *steps, *of_loops, *_of_constants(model)])
    for graph in graphs(model):
        for index in range(len(graph.tensors)):
            parameters = graph.tensors[index].quantization
            if graph.type(index) not in _INTEGERS or graph.is_constant(index) or parameters is None:
                continue
            if parameters.scale is None or not len(parameters.scale):
                continue
            zero = int(parameters.zeroPoint[0]) - (128 if graph.type(index) == "UINT8" else 0)
            check_step(TFLITE, graph.name(index), (float(parameters.scale[0]), zero), allowed)


def _of_constants(model: ModelT) -> Iterator[tuple[float, float]]:
    """The steps of constants, which what only copies their codes has too."""
    for graph in graphs(model):
        for tensor in graph.tensors:
            parameters = tensor.quantization
            is_constant = size_of(model.buffers[tensor.buffer]) > 0
            if is_constant and parameters is not None and parameters.scale is not None and len(parameters.scale) == 1:
                yield float(parameters.scale[0]), float(parameters.zeroPoint[0])


def _step(least: float, largest: float) -> tuple[float, float]:
    """The scale and the zero point of a range in 8 bits, as the quantizer chooses them."""
    scale = (max(largest, 0.0) - min(least, 0.0)) / 255
    return scale, 0.0 if scale == 0 else round(-128 - min(least, 0.0) / scale)
