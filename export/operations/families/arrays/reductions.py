"""Sums, means and norms over axes, and the shapes between which tensors are repeated."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from keras_transformer.export.graph.part import Node
from keras_transformer.export.operations.conditions import is_float, is_int64, is_of_known_axis, is_small
from keras_transformer.export.operations.families.arrays.scans import running_product
from keras_transformer.export.operations.operation import (
    NAN,
    ONNX,
    TFLITE,
    Attributes,
    Decomposed,
    Operation,
    Region,
    in_both,
)
from keras_transformer.utils.types import Tensor


def euclidean_norm(x: Tensor, axes: Tensor, *, keep_dims: bool) -> Tensor:
    return tf.sqrt(tf.reduce_sum(x * x, axes, keepdims=keep_dims))


def broadcast_shape(x: Tensor, y: Tensor) -> Tensor:
    """The shape of what has two shapes, whose sizes are equal or 1."""
    length = max(x.shape[0], y.shape[0])
    x, y = (tf.concat([tf.ones(length - each.shape[0], each.dtype), each], 0) for each in (x, y))
    return tf.where(tf.equal(x, 1), y, x)


def sum_to_shape(x: Tensor, shape: Tensor) -> Tensor:
    """The gradient of what was repeated along axes of size 1: each axis is split in the old size and the repetitions."""
    before = x.shape.rank - shape.shape[0]
    sizes = tf.concat([tf.ones(before, shape.dtype), shape], 0)
    split = tf.stack([sizes, tf.shape(x, out_type=shape.dtype) // sizes], 1)
    return tf.reduce_sum(tf.reshape(x, tf.reshape(split, [-1])), list(range(1, 2 * x.shape.rank, 2)))


def _is_of_known_ranks(node: Node) -> bool:
    return all(
        node.part.spec(each).shape.rank == 1 and node.part.spec(each).shape[0] is not None for each in node.inputs
    )


def _repeated(node: Node) -> Sequence[str]:
    """The operands of `sum_to_shape`, or none: a sum over the axes that `BroadcastGradientArgs` gives, then a reshape."""
    producer = node.producer(1)
    if producer is None or producer.op != "BroadcastGradientArgs" or not _is_of_known_ranks(producer):
        return ()
    is_second = node.inputs[1].endswith((":1", ":r1:0"))
    is_reshaped = bool(node.readers) and all(each in ("Reshape", "Shape") for each in node.readers)
    is_known = is_reshaped and node.part.spec(node.inputs[0]).shape.rank is not None
    return (node.inputs[0], producer.inputs[int(is_second)]) if is_known else ()


def _is_repeated(node: Node) -> bool:
    return len(_repeated(node)) > 0


def sum_of_int32(x: Tensor, axes: Tensor, *, keep_dims: bool) -> Tensor:
    """The last bits of a sum: ONNX Runtime takes one beyond the range for the nearest end."""
    return tf.cast(tf.reduce_sum(tf.cast(x, tf.int64), axes, keepdims=keep_dims), tf.int32)


def sum_of_int64(x: Tensor, axes: Tensor, *, keep_dims: bool) -> Tensor:
    """The sums of both halves: ONNX Runtime adds in float64, which has integers of 53 bits."""
    low = tf.cast(x, tf.int32)
    high = tf.cast(tf.truncatediv(x - tf.cast(low, tf.int64), tf.constant(1 << 32, tf.int64)), tf.int32)
    high, low = (tf.reduce_sum(tf.cast(each, tf.int64), axes, keepdims=keep_dims) for each in (high, low))
    return high * (1 << 32) + low


def product_of_integers(x: Tensor, axes: Tensor, *, keep_dims: bool) -> Tensor:
    """The last bits of a product, axis by axis: ONNX Runtime multiplies in float64, and takes the nearest end of a type."""
    numbers = [int(axis) % x.shape.rank for axis in np.ravel(tf.get_static_value(axes))]
    for axis in numbers:
        pads = [[int(each == axis), 0] for each in range(x.shape.rank)]
        products = running_product(tf.pad(x, pads, constant_values=1), axis, exclusive=False, reverse=False)
        x = tf.gather(products, [tf.shape(products)[axis] - 1], axis=axis)
    return x if keep_dims else tf.squeeze(x, numbers)


def _is_large_product(node: Node) -> bool:
    return is_of_known_axis(node) and node.dtype() in (tf.int32, tf.int64) and not is_small(node.producer(0))


def _is_large_int32(node: Node) -> bool:
    return node.dtype() == tf.int32 and not is_small(node.producer(0))


def _is_large_int64(node: Node) -> bool:
    """Whether there may be int64 that no int32 was cast to."""
    producer = node.producer(0)
    is_cast = producer is not None and producer.op == "Cast" and producer.dtype() in (tf.int32, tf.bool)
    return is_int64(node) and not is_cast and not is_small(producer)


def half_sum_of_squares(x: Tensor) -> Tensor:
    return 0.5 * tf.reduce_sum(x * x)


def _length(attributes: Attributes, inputs: Sequence[Tensor], result: Tensor) -> float:
    return math.prod(inputs[0].shape) / max(1, math.prod(result.shape))


_SHAPE = Decomposed(broadcast_shape, when=_is_of_known_ranks)
_GRADIENT = Decomposed(sum_to_shape, when=_is_repeated, operands=_repeated)
_NORM = Decomposed(euclidean_norm, ("keep_dims",), is_float)
_INTEGER_SUMS = (
    Decomposed(sum_of_int32, ("keep_dims",), _is_large_int32),
    Decomposed(sum_of_int64, ("keep_dims",), _is_large_int64),
)

OPERATIONS = (
    Operation("BroadcastArgs", {ONNX: _SHAPE}),
    Operation("AvgPool", rounds=True, differs={TFLITE: (Region(NAN),)}),
    Operation("EuclideanNorm", in_both(_NORM), rounds=True, sum_length=_length),
    Operation("L2Loss", {ONNX: Decomposed(half_sum_of_squares)}, rounds=True, sum_length=_length),
    Operation("Mean", rounds=True, rounds_operands=True, sum_length=_length),
    Operation("Max", differs={TFLITE: (Region(NAN),), ONNX: (Region(NAN),)}),
    Operation("Min", differs={TFLITE: (Region(NAN),), ONNX: (Region(NAN),)}),
    Operation(
        "Prod",
        {ONNX: Decomposed(product_of_integers, ("keep_dims",), _is_large_product)},
        rounds=True,
        sum_length=_length,
    ),
    Operation(
        "Sum",
        {TFLITE: _GRADIENT, ONNX: (_GRADIENT, *_INTEGER_SUMS)},
        rounds=True,
        rounds_operands=True,
        sum_length=_length,
    ),
)
