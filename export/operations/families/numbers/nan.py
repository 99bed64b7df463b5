"""NaN that ordinary numbers become in a model, such as a root of a negative one, and that LiteRT drops behind it."""

from __future__ import annotations

import tensorflow as tf

from keras_transformer.export.graph.part import Node
from keras_transformer.export.operations.conditions import is_float32
from keras_transformer.utils.types import Tensor

# Functions of a part of the numbers, and operations that make NaN of NaN, of which so many are followed.
_LIMITED = ("Sqrt", "Rsqrt", "Log", "Log1p", "Pow", "Acos", "Acosh", "Asin", "Atanh")
_LINEAR = ("Add", "AddV2", "Sub", "Mul", "RealDiv", "Neg", "Sum", "Mean", "Reshape", "Transpose", "Identity")
_DEEPEST = 4
_POSITIVE = ("Abs", "Exp", "Relu", "Sigmoid", "Softmax", "Softplus", "Square", "SquaredDifference")
_SUMS = ("Add", "AddV2", "Maximum", "Mean", "Sum")


def or_nan(x: Tensor, result: Tensor) -> Tensor:
    """The result, and NaN where the argument is: limits of arguments drop it, and so does LiteRT's exponential."""
    return tf.where(tf.equal(x, x), result, x)


def is_of_limited(node: Node) -> bool:
    """Whether an argument is computed of a root, say, which ordinary numbers have none of."""
    return is_float32(node) and _may_be_nan(node.producer(0), _DEEPEST)


def is_not_of_limited(node: Node) -> bool:
    return not is_of_limited(node)


def _may_be_nan(node: Node | None, depth: int) -> bool:
    if node is None or not depth:
        return False
    if node.op in _LIMITED:
        return not _is_positive(node.producer(0))
    return node.op in _LINEAR and any(_may_be_nan(node.producer(each), depth - 1) for each in range(len(node.inputs)))


def _is_positive(node: Node | None) -> bool:
    """Whether a result has no sign, or something is added to it."""
    return node is not None and node.op in (*_POSITIVE, *_SUMS)
