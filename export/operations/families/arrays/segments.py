"""Sums and extremes of the elements of segments."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from keras_transformer.export.graph.part import Node
from keras_transformer.export.operations.conditions import is_int64
from keras_transformer.export.operations.operation import NAN, ONNX, TFLITE, Decomposed, Operation, Region, in_both
from keras_transformer.utils.types import Tensor


def segment_sum_by_scatter(x: Tensor, segments: Tensor, count: Tensor) -> Tensor:
    return _scattered(tf.tensor_scatter_nd_add, 0, x, segments, count)


def segment_sum_of_int64(x: Tensor, segments: Tensor, count: Tensor) -> Tensor:
    """LiteRT adds what it scatters to one place, int64 too."""
    return tf.scatter_nd(*_places(x, segments, count))[:-1]


def segment_maximum_by_scatter(x: Tensor, segments: Tensor, count: Tensor) -> Tensor:
    return _scattered(tf.tensor_scatter_nd_max, x.dtype.min, x, segments, count)


def segment_minimum_by_scatter(x: Tensor, segments: Tensor, count: Tensor) -> Tensor:
    return _scattered(tf.tensor_scatter_nd_min, x.dtype.max, x, segments, count)


def _scattered(scatter: Callable[..., Tensor], first: float, x: Tensor, segments: Tensor, count: Tensor) -> Tensor:
    rows, x, shape = _places(x, segments, count)
    return scatter(tf.fill(shape, tf.constant(first, x.dtype)), rows, x)[:-1]


def _places(x: Tensor, segments: Tensor, count: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The row of each element, that of its segment, the elements, and the shape of all rows.

    Elements of negative segments go to a further row, which is left out.
    """
    count = tf.cast(count, segments.dtype)
    rows = tf.where(segments < 0, count, segments)
    shape = tf.concat([[count + 1], tf.shape(x, out_type=segments.dtype)[segments.shape.rank :]], 0)
    return tf.expand_dims(rows, -1), x, shape


def segment_product_of_inner(x: Tensor, segments: Tensor, count: Tensor) -> Tensor:
    """tf2onnx counts segments below 0 from the end: they become the first one, which is cut off."""
    one = tf.constant(1, segments.dtype)
    known = tf.get_static_value(count)
    more = count + 1 if known is None else int(known) + 1
    return tf.math.unsorted_segment_prod(x, tf.maximum(segments, -one) + one, more)[1:]


def _may_be_below_zero(node: Node) -> bool:
    """Whether segments may be below 0, and are not those of `segment_product_of_inner`."""
    known, producer = node.value(1), node.producer(1)
    if known is not None:
        return bool((known < 0).any())
    before = producer.producer(0) if producer is not None and producer.op == "AddV2" else None
    return before is None or before.op != "Maximum"


def segment_sum(x: Tensor, segments: Tensor) -> Tensor:
    return tf.math.unsorted_segment_sum(x, segments, segments[-1] + 1)


def segment_product(x: Tensor, segments: Tensor) -> Tensor:
    return tf.math.unsorted_segment_prod(x, segments, segments[-1] + 1)


def segment_mean(x: Tensor, segments: Tensor) -> Tensor:
    """0 where a segment is empty."""
    count = segments[-1] + 1
    sizes = tf.math.unsorted_segment_sum(tf.ones_like(x), segments, count)
    return tf.math.unsorted_segment_sum(x, segments, count) / tf.maximum(sizes, tf.ones_like(sizes))


def segment_maximum(x: Tensor, segments: Tensor) -> Tensor:
    return _extreme(tf.math.unsorted_segment_max, x, segments)


def segment_minimum(x: Tensor, segments: Tensor) -> Tensor:
    return _extreme(tf.math.unsorted_segment_min, x, segments)


def _extreme(function: Callable[..., Tensor], x: Tensor, segments: Tensor) -> Tensor:
    """The extreme of each segment; 0 where a segment is empty."""
    count = segments[-1] + 1
    sizes = tf.math.unsorted_segment_sum(tf.ones_like(x), segments, count)
    found = function(x, segments, count)
    return tf.where(sizes > 0, found, tf.zeros_like(found))


OPERATIONS = (
    Operation("SegmentSum", {TFLITE: Decomposed(segment_sum)}, rounds=True),
    Operation("SegmentProd", {TFLITE: Decomposed(segment_product)}, rounds=True),
    Operation("SegmentMean", in_both(Decomposed(segment_mean)), rounds=True),
    Operation("SegmentMax", in_both(Decomposed(segment_maximum))),
    Operation("SegmentMin", in_both(Decomposed(segment_minimum))),
    Operation(
        "UnsortedSegmentSum",
        {TFLITE: Decomposed(segment_sum_of_int64, when=is_int64), ONNX: Decomposed(segment_sum_by_scatter)},
        rounds=True,
    ),
    Operation("UnsortedSegmentMax", {ONNX: Decomposed(segment_maximum_by_scatter)}, differs={TFLITE: (Region(NAN),)}),
    Operation(
        "UnsortedSegmentProd", {ONNX: Decomposed(segment_product_of_inner, when=_may_be_below_zero)}, rounds=True
    ),
    Operation("UnsortedSegmentMin", {ONNX: Decomposed(segment_minimum_by_scatter)}, differs={TFLITE: (Region(NAN),)}),
)
