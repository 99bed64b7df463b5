"""Sums, means and norms over axes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from keras_transformer.export.operations.operation import ONNX, Decomposed, Operation, in_both
from keras_transformer.utils.types import Tensor


def euclidean_norm(x: Tensor, axes: Tensor, *, keep_dims: bool) -> Tensor:
    return tf.sqrt(tf.reduce_sum(x * x, axes, keepdims=keep_dims))


def half_sum_of_squares(x: Tensor) -> Tensor:
    return 0.5 * tf.reduce_sum(x * x)


def _length(attributes: Mapping[str, Any], inputs: Sequence[Tensor], result: Tensor) -> float:
    return math.prod(inputs[0].shape) / max(1, math.prod(result.shape))


_NORM = Decomposed(euclidean_norm, ("keep_dims",))

OPERATIONS = (
    Operation("AvgPool", rounds=True),
    Operation("EuclideanNorm", in_both(_NORM), rounds=True, sum_length=_length),
    Operation("L2Loss", {ONNX: Decomposed(half_sum_of_squares)}, rounds=True, sum_length=_length),
    Operation("Mean", rounds=True, sum_length=_length),
    Operation("Prod", rounds=True, sum_length=_length),
    Operation("Sum", rounds=True, sum_length=_length),
)
