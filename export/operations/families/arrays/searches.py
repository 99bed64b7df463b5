"""Counts, ranks and places in sorted rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from keras_transformer.export.graph.part import Node
from keras_transformer.export.operations.conditions import is_boolean, is_int64
from keras_transformer.export.operations.operation import (
    NAN,
    ONNX,
    TFLITE,
    Decomposed,
    Native,
    Operation,
    Region,
    in_both,
)
from keras_transformer.utils.types import Tensor


def bucket(x: Tensor, *, boundaries: Sequence[float]) -> Tensor:
    """NaN comes behind all boundaries: it is not below one."""
    reached = tf.logical_not(tf.expand_dims(tf.cast(x, tf.float32), -1) < tf.constant(list(boundaries), tf.float32))
    return tf.reduce_sum(tf.cast(reached, tf.int32), -1)


def lower_bound(rows: Tensor, values: Tensor, *, out_type: tf.DType) -> Tensor:
    return _counted(tf.less, rows, values, out_type)


def upper_bound(rows: Tensor, values: Tensor, *, out_type: tf.DType) -> Tensor:
    return _counted(tf.less_equal, rows, values, out_type)


def bisected_lower_bound(rows: Tensor, values: Tensor, *, out_type: tf.DType) -> Tensor:
    return _bisected(tf.less, rows, values, out_type)


def bisected_upper_bound(rows: Tensor, values: Tensor, *, out_type: tf.DType) -> Tensor:
    return _bisected(tf.less_equal, rows, values, out_type)


def _bisected(is_before: Callable[[Tensor, Tensor], Tensor], rows: Tensor, values: Tensor, dtype: tf.DType) -> Tensor:
    """The place that a search by halves ends at, as TensorFlow's does: of rows that are not sorted, it is no count."""
    size = int(rows.shape[1])
    first = tf.zeros_like(values, tf.int32)
    left = first + size
    for _ in range(size.bit_length()):
        half = left // 2
        middle = first + half
        found = tf.gather(rows, tf.minimum(middle, size - 1), batch_dims=1)
        is_behind = tf.logical_and(is_before(found, values), left > 0)
        first = tf.where(is_behind, middle + 1, first)
        left = tf.where(is_behind, left - half - 1, half)
    return tf.cast(first, dtype)


def _counted(is_before: Callable[[Tensor, Tensor], Tensor], rows: Tensor, values: Tensor, dtype: tf.DType) -> Tensor:
    """How many elements of its row come before each value."""
    before = is_before(tf.expand_dims(rows, 1), tf.expand_dims(values, 2))
    return tf.cast(tf.reduce_sum(tf.cast(before, tf.int32), -1), dtype)


def unique_with_counts(x: Tensor, *, out_idx: tf.DType) -> list[Tensor]:
    """LiteRT finds the numbers and their places; how often each place is there is a sum."""
    numbers, places = tf.unique(x, tf.int32)
    counts = tf.math.unsorted_segment_sum(tf.ones_like(places), places, tf.size(numbers))
    return [numbers, tf.cast(places, out_idx), tf.cast(counts, out_idx)]


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


def largest_boolean(x: Tensor, axis: Tensor, *, output_type: tf.DType) -> Tensor:
    return tf.argmax(tf.cast(x, tf.int32), axis, output_type)


def smallest_boolean(x: Tensor, axis: Tensor, *, output_type: tf.DType) -> Tensor:
    return tf.argmin(tf.cast(x, tf.int32), axis, output_type)


def nth_element(x: Tensor, number: Tensor, *, reverse: bool) -> Tensor:
    signed = x if reverse else -x
    found = tf.math.top_k(signed, number + 1).values[..., -1]
    return found if reverse else -found


def sorted_numbers(graph: Any, node: Any, name: str, arguments: object) -> None:
    """ONNX's `TopK`, of int32 and int64 too, of which tf2onnx makes float32."""
    from onnx import TensorProto
    from tf2onnx.graph_builder import GraphBuilder
    from tf2onnx.onnx_opset.tensor import TopKV2

    node.type = "TopK"
    if graph.get_dtype(node.input[0]) not in (TensorProto.INT32, TensorProto.INT64):
        TopKV2.version_13(graph, node)
        return
    count = graph.make_node("Cast", [node.input[1]], attr={"to": TensorProto.INT64})
    count = GraphBuilder(graph).make_unsqueeze({"data": count.output[0], "axes": [0]}, return_node=True)
    graph.replace_input(node, node.input[1], count.output[0], 1)
    places, dtype = node.output[1], node.output_dtypes[1]
    cast = graph.insert_new_node_on_output("Cast", places, name=f"{name}/places", to=dtype)
    graph.set_dtype(cast.output[0], dtype)
    graph.copy_shape(places, cast.output[0])
    graph.set_dtype(places, TensorProto.INT64)


def _is_weighted(node: Node) -> bool:
    return _is_of_rows(node) and node.part.spec(node.inputs[2]).shape.num_elements() != 0


def _is_of_rows(node: Node) -> bool:
    return node.part.spec(node.inputs[0]).shape.rank in (1, 2)


def _may_be_unsorted(node: Node) -> bool:
    """Whether rows of a known size are computed, or given."""
    return node.value(0) is None and bool(node.part.spec(node.inputs[0]).shape[1:].num_elements())


def _is_int64_of_known_axis(node: Node) -> bool:
    return is_int64(node) and node.value(1) is not None and node.part.spec(node.inputs[0]).shape.rank is not None


_LARGEST = Decomposed(largest_int64, ("output_type",), _is_int64_of_known_axis)
_SMALLEST = Decomposed(smallest_int64, ("output_type",), _is_int64_of_known_axis)
_LARGEST_BOOLEAN = Decomposed(largest_boolean, ("output_type",), is_boolean)
_SMALLEST_BOOLEAN = Decomposed(smallest_boolean, ("output_type",), is_boolean)
_NANS = {TFLITE: (Region(NAN),), ONNX: (Region(NAN),)}
_LOWER = (
    Decomposed(bisected_lower_bound, ("out_type",), _may_be_unsorted),
    Decomposed(lower_bound, ("out_type",)),
)
_UPPER = (
    Decomposed(bisected_upper_bound, ("out_type",), _may_be_unsorted),
    Decomposed(upper_bound, ("out_type",)),
)
_IN_TOP, _NTH = Decomposed(in_top), Decomposed(nth_element, ("reverse",))

OPERATIONS = (
    Operation("ArgMax", {TFLITE: _LARGEST, ONNX: _LARGEST_BOOLEAN}, differs=_NANS),
    Operation("ArgMin", {TFLITE: _SMALLEST, ONNX: _SMALLEST_BOOLEAN}, differs=_NANS),
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
    Operation("TopKV2", {ONNX: Native(sorted_numbers)}, differs=_NANS),
    Operation("UniqueWithCounts", {TFLITE: Decomposed(unique_with_counts, ("out_idx",))}),
    Operation("UpperBound", in_both(_UPPER)),
)
