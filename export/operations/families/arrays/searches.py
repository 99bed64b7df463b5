"""Counts, ranks and places in sorted rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

from keras_transformer.export.graph.part import Node
from keras_transformer.export.operations.conditions import is_int64
from keras_transformer.export.operations.operation import ONNX, TFLITE, Decomposed, Operation, in_both
from keras_transformer.utils.types import Tensor


def bucket(x: Tensor, *, boundaries: Sequence[float]) -> Tensor:
    reached = tf.expand_dims(tf.cast(x, tf.float32), -1) >= tf.constant(list(boundaries), tf.float32)
    return tf.reduce_sum(tf.cast(reached, tf.int32), -1)


def lower_bound(rows: Tensor, values: Tensor, *, out_type: tf.DType) -> Tensor:
    return _counted(tf.less, rows, values, out_type)


def upper_bound(rows: Tensor, values: Tensor, *, out_type: tf.DType) -> Tensor:
    return _counted(tf.less_equal, rows, values, out_type)


def _counted(is_before: Callable[[Tensor, Tensor], Tensor], rows: Tensor, values: Tensor, dtype: tf.DType) -> Tensor:
    """How many elements of its row come before each value."""
    before = is_before(tf.expand_dims(rows, 1), tf.expand_dims(values, 2))
    return tf.cast(tf.reduce_sum(tf.cast(before, tf.int32), -1), dtype)


def in_top(predictions: Tensor, targets: Tensor, count: Tensor) -> Tensor:
    """Whether fewer than `count` classes have a higher score than the target, as far as that is finite."""
    classes = tf.shape(predictions, out_type=targets.dtype)[1]
    is_class = tf.logical_and(targets >= 0, targets < classes)
    score = tf.gather(predictions, tf.where(is_class, targets, tf.zeros_like(targets)), batch_dims=1)
    higher = tf.reduce_sum(tf.cast(predictions > tf.expand_dims(score, 1), count.dtype), 1)
    is_in = tf.logical_and(higher < count, tf.math.is_finite(score))
    return tf.logical_and(is_in, is_class)


def bin_count(x: Tensor, size: Tensor, weights: Tensor, *, binary_output: bool) -> Tensor:
    """Elements are counted by segment, those of each row apart; what is outside goes to a further segment."""
    size = tf.cast(size, tf.int32)
    x = tf.cast(x, tf.int32)
    bins = tf.where(tf.logical_and(x >= 0, x < size), x, size)
    rows = 1
    if x.shape.rank == 2:
        rows = tf.shape(x)[0]
        bins = bins + tf.expand_dims(tf.range(rows) * (size + 1), 1)
    given = weights if weights.shape.num_elements() != 0 else tf.ones_like(bins, weights.dtype)
    counted = tf.math.unsorted_segment_sum(tf.reshape(given, [-1]), tf.reshape(bins, [-1]), rows * (size + 1))
    counted = tf.reshape(counted, [rows, size + 1])[:, :-1]
    counted = tf.cast(counted > 0, weights.dtype) if binary_output else counted
    return counted if x.shape.rank == 2 else tf.reshape(counted, [-1])


def largest_int64(x: Tensor, axis: Tensor, *, output_type: tf.DType) -> Tensor:
    """The index of the largest int64, which LiteRT sorts only."""
    return _first(x, axis, output_type)


def smallest_int64(x: Tensor, axis: Tensor, *, output_type: tf.DType) -> Tensor:
    return _first(-1 - x, axis, output_type)


def _first(x: Tensor, axis: Tensor, dtype: tf.DType) -> Tensor:
    last, axis = x.shape.rank - 1, int(tf.get_static_value(axis)) % x.shape.rank
    order = [each for each in range(last + 1) if each != axis]
    return tf.cast(tf.math.top_k(tf.transpose(x, [*order, axis]), 1).indices[..., 0], dtype)


def nth_element(x: Tensor, number: Tensor, *, reverse: bool) -> Tensor:
    signed = x if reverse else -x
    found = tf.math.top_k(signed, number + 1).values[..., -1]
    return found if reverse else -found


def _is_weighted(node: Node) -> bool:
    return _is_of_rows(node) and node.part.spec(node.inputs[2]).shape.num_elements() != 0


def _is_of_rows(node: Node) -> bool:
    return node.part.spec(node.inputs[0]).shape.rank in (1, 2)


def _is_int64_of_known_axis(node: Node) -> bool:
    return is_int64(node) and node.value(1) is not None and node.part.spec(node.inputs[0]).shape.rank is not None


_LARGEST = Decomposed(largest_int64, ("output_type",), _is_int64_of_known_axis)
_SMALLEST = Decomposed(smallest_int64, ("output_type",), _is_int64_of_known_axis)
_LOWER, _UPPER = Decomposed(lower_bound, ("out_type",)), Decomposed(upper_bound, ("out_type",))
_IN_TOP, _NTH = Decomposed(in_top), Decomposed(nth_element, ("reverse",))

OPERATIONS = (
    Operation("ArgMax", {TFLITE: _LARGEST}),
    Operation("ArgMin", {TFLITE: _SMALLEST}),
    Operation("Bucketize", {ONNX: Decomposed(bucket, ("boundaries",))}),
    Operation(
        "DenseBincount",
        {
            TFLITE: Decomposed(bin_count, ("binary_output",), _is_of_rows),
            ONNX: Decomposed(bin_count, ("binary_output",), _is_weighted),
        },
    ),
    Operation("InTopKV2", in_both(_IN_TOP)),
    Operation("LowerBound", in_both(_LOWER)),
    Operation("NthElement", in_both(_NTH)),
    Operation("UpperBound", in_both(_UPPER)),
)
