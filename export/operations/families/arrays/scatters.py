"""Updates of parts of a tensor."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from keras_transformer.export.graph.part import Node
from keras_transformer.export.operations.conditions import is_byte
from keras_transformer.export.operations.operation import ONNX, TFLITE, Decomposed, Operation, in_both
from keras_transformer.utils.types import Tensor


def scatter_of_bytes(x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    """An update of bytes, such as that of a rounded cache, which the converter has for wider types only.

    It is a choice between new rows and old ones, with a mask of one element for each row.
    """
    depth = indices.shape[-1]
    shape = tf.shape(x)
    written = tf.reduce_max(indices, -1) >= 0
    mask = tf.scatter_nd(indices, written, shape[:depth])
    for _ in range(x.shape.rank - depth):
        mask = tf.expand_dims(mask, -1)
    return tf.where(mask, tf.scatter_nd(indices, updates, shape), x)


def scatter_of_sums(indices: Tensor, updates: Tensor, shape: Tensor) -> Tensor:
    """ONNX's scattering keeps the last of several updates in one place, TensorFlow's has their sum."""
    return tf.tensor_scatter_nd_add(tf.zeros(shape, updates.dtype), indices, updates)


def scatter_maximum(x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    return tf.maximum(x, _extreme(tf.math.unsorted_segment_max, x, indices, updates))


def scatter_minimum(x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    return tf.minimum(x, _extreme(tf.math.unsorted_segment_min, x, indices, updates))


def stitched(*operands: Tensor) -> Tensor:
    """The parts of a tensor at their places, as of the shapes in gradients; a later part replaces an earlier one."""
    count = len(operands) // 2
    places = [tf.reshape(each, [-1]) for each in operands[:count]]
    parts = [
        tf.reshape(part, tf.concat([[-1], tf.shape(part)[indices.shape.rank :]], 0))
        for indices, part in zip(operands[:count], operands[count:], strict=True)
    ]
    size = tf.reduce_max(tf.concat(places, 0), keepdims=True) + 1
    found = tf.zeros(tf.concat([size, tf.shape(parts[0])[1:]], 0), parts[0].dtype)
    for indices, part in zip(places, parts, strict=True):
        found = tf.tensor_scatter_nd_update(found, indices[:, None], part)
    return found


def _extreme(function: Callable[..., Tensor], x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    """The extremes of what goes to each place of `x`."""
    shape, depth = tf.shape(x), indices.shape[-1]
    places = tf.zeros_like(indices[..., 0])
    for axis in range(depth):
        places = places * tf.cast(shape[axis], indices.dtype) + indices[..., axis]
    rows = tf.concat([[-1], shape[depth:]], 0)
    found = function(tf.reshape(updates, rows), tf.reshape(places, [-1]), tf.reduce_prod(shape[:depth]))
    return tf.reshape(found, shape)


def dynamic_update_slice(x: Tensor, update: Tensor, starts: Tensor) -> Tensor:
    """`keras.ops.slice_update`: the update, padded to the full shape, where a padded block of ones is set.

    As in XLA, the start is clamped so that the update fits.
    """
    starts = tf.cast(starts, tf.int32)
    most = tf.shape(x) - tf.shape(update)
    begin = tf.maximum(tf.minimum(starts, most), 0)
    pads = tf.stack([begin, most - begin], 1)
    inside = tf.cast(tf.pad(tf.ones_like(update, tf.int32), pads), tf.bool)
    return tf.where(inside, tf.pad(update, pads), x)


def _may_meet(node: Node) -> bool:
    """Whether several updates may be for one place."""
    indices = node.value(0)
    rows = None if indices is None else indices.reshape(-1, indices.shape[-1]).tolist()
    is_unique = rows is not None and len(set(map(tuple, rows))) == len(rows)
    return not is_unique and node.dtype(1) != tf.bool


def _is_of_known_depth(node: Node) -> bool:
    return node.part.spec(node.inputs[1]).shape[-1] is not None


OPERATIONS = (
    Operation("ScatterNd", {ONNX: Decomposed(scatter_of_sums, when=_may_meet)}),
    Operation("TensorScatterAdd", rounds=True),
    Operation("TensorScatterUpdate", {TFLITE: Decomposed(scatter_of_bytes, when=is_byte)}),
    Operation("TensorScatterMax", {TFLITE: Decomposed(scatter_maximum, when=_is_of_known_depth)}),
    Operation("TensorScatterMin", {TFLITE: Decomposed(scatter_minimum, when=_is_of_known_depth)}),
    Operation("XlaDynamicUpdateSlice", {ONNX: Decomposed(dynamic_update_slice)}),
    Operation("DynamicStitch", in_both(Decomposed(stitched))),
)
