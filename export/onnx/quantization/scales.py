"""The check of the scales of activations in quantized ONNX files against the ranges that were measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

import numpy as np
import onnx_ir as ir

from keras_transformer.export.onnx.graph import name_of
from keras_transformer.export.onnx.quantization.factors import factor_before, is_scaled, step_of
from keras_transformer.export.quantization.ranges import check_step, unknown_step
from keras_transformer.export.runtime.libraries import ONNX


def check_scales(
    graph: ir.Graph,
    ranges: Mapping[str, tuple[float, float]],
    bits: int = 8,
    factors: Mapping[str, float] = MappingProxyType({}),
) -> None:
    """Checks that tensors become integers by the steps of one of the measured ranges, and floats by those times a factor.

    Args:
        graph: the quantized graph.
        ranges: those of the float file.
        bits: of the activations.
        factors: see `factors_of`.

    Raises:
        WeightError: names the tensor.
    """
    # The results of a softmax have the range from 0 to 1.
    allowed = np.array([*(_step(*ends, bits) for ends in ((0.0, 1.0), *ranges.values())), *_of_tables(graph)])
    for node, step in _steps(graph):
        source = (
            node.inputs[0].producer() if node.op_type == "DequantizeLinear" and node.inputs[0] is not None else None
        )
        while source is not None and source.op_type != "QuantizeLinear":
            source = None if source.inputs[0] is None else source.inputs[0].producer()
        tensor = name_of(node.inputs[0])
        check_step(ONNX, tensor, step, allowed)
        own = step if source is None else step_of(source)
        if own != step and not is_scaled(own, factor_before(node, factors), step):
            raise unknown_step(ONNX, tensor, step)


def _of_tables(graph: ir.Graph) -> Iterator[tuple[float, float]]:
    """The steps of constants with one scale, which the rows of a table have too."""
    for node in graph:
        is_constant = (
            node.op_type == "DequantizeLinear" and node.inputs[0] is not None and node.inputs[0].is_initializer()
        )
        if is_constant and node.inputs[1] is not None and not node.inputs[1].shape:
            yield step_of(node)


def _steps(graph: ir.Graph) -> Iterator[tuple[ir.Node, tuple[float, float]]]:
    """The nodes between floats and integers of activations, with their scale and zero point."""
    for node in graph:
        is_activation = bool(node.inputs) and node.inputs[0] is not None and not node.inputs[0].is_initializer()
        if node.op_type in ("QuantizeLinear", "DequantizeLinear") and is_activation:
            yield node, step_of(node)


def _step(least: float, largest: float, bits: int) -> tuple[float, float]:
    """The scale and the zero point of a range, as onnxruntime.quantization chooses them."""
    least, largest = min(least, 0.0), max(largest, 0.0)
    scale = (largest - least) / (2**bits - 1)
    return scale or 1.0, 0.0 if scale == 0 else round(-least / scale)
