"""Sums, means and norms over axes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from keras_transformer.export.graph.part import Node
from keras_transformer.export.operations.operation import ONNX, Decomposed, Operation, in_both
from keras_transformer.utils.types import Tensor


def euclidean_norm(x: Tensor, axes: Tensor, *, keep_dims: bool) -> Tensor:
    return tf.sqrt(tf.reduce_sum(x * x, axes, keepdims=keep_dims))


def half_sum_of_squares(x: Tensor) -> Tensor:
    return 0.5 * tf.reduce_sum(x * x)


def broadcast_gradient_axes(x: Tensor, y: Tensor) -> list[Tensor]:
    """The axes along which a gradient is summed for each of two shapes that were broadcast: those of its ones."""
    rank = max(x.shape[0], y.shape[0])
    shapes = [tf.pad(each, [[rank - each.shape[0], 0]], constant_values=1) for each in (x, y)]
    return [tf.reshape(tf.cast(tf.where(tf.equal(each, 1)), x.dtype), [-1]) for each in shapes]


def _is_of_known_ranks(node: Node) -> bool:
    return all(node.part.spec(each).shape.is_fully_defined() for each in node.inputs)


def _length(attributes: Mapping[str, Any], inputs: Sequence[Tensor], result: Tensor) -> float:
    return math.prod(inputs[0].shape) / max(1, math.prod(result.shape))


_NORM = Decomposed(euclidean_norm, ("keep_dims",))
_GRADIENT_AXES = Decomposed(broadcast_gradient_axes, when=_is_of_known_ranks)

OPERATIONS = (
    Operation("AvgPool", rounds=True),
    Operation("BroadcastGradientArgs", in_both(_GRADIENT_AXES)),
    Operation("EuclideanNorm", in_both(_NORM), rounds=True, sum_length=_length),
    Operation("L2Loss", {ONNX: Decomposed(half_sum_of_squares)}, rounds=True, sum_length=_length),
    Operation("Mean", rounds=True, sum_length=_length),
    Operation("Prod", rounds=True, sum_length=_length),
    Operation("Sum", rounds=True, sum_length=_length),
)
