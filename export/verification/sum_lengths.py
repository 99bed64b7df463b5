"""How many numbers an operation adds for each element of its result."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from keras_transformer.export.verification.graph_execution import Operation
from keras_transformer.planning.graph.multiply_adds import einsum_multiply_adds

_REDUCTIONS, _RUNNING = ("Mean", "Prod", "Sum"), ("Cumprod", "Cumsum")


def sum_length(operation: Operation, inputs: Sequence[Any], result: Any) -> float:
    """The length of the sums, or of the products of many factors, of an operation; 1 where there are none.

    Args:
        operation: `Operation`.
        inputs: its tensors.
        result: its first result.
    """
    kind, attributes = operation.kind, operation.attributes
    shapes = [tuple(each.shape) for each in inputs]
    if kind == "MatMul":
        return shapes[0][0 if attributes["transpose_a"].b else 1]
    if kind.startswith("BatchMatMul"):
        return shapes[0][-2 if attributes["adj_x"].b else -1]
    if kind == "Einsum":
        return einsum_multiply_adds(attributes["equation"].s.decode(), shapes) / max(1, _size(result.shape))
    if kind == "DepthwiseConv2dNative":
        return _size(shapes[1][:2])
    if kind == "Conv2DBackpropInput":
        return _size(shapes[1][:2]) * shapes[1][-1]
    if kind in ("Conv2D", "Conv3D"):
        return _size(shapes[1][:-1])
    if kind in _REDUCTIONS:
        return _size(shapes[0]) / max(1, _size(result.shape))
    if kind in _RUNNING:
        return shapes[0][int(inputs[1])]
    return 1


def _size(shape: Sequence[int]) -> int:
    return math.prod(shape)
