"""Slices and layouts: values that move."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from keras_transformer.export.graph.part import Node
from keras_transformer.export.operations.conditions import is_boolean, is_float32, is_int64, is_of_known_axis
from keras_transformer.export.operations.operation import TFLITE, Decomposed, Operation, in_both
from keras_transformer.export.operations.sizes import size
from keras_transformer.utils.types import Tensor

# Of a concatenation.
_MOST_COPIES = 64
_MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")


def slice_then_new_axes(x: Tensor, begin: Tensor, end: Tensor, strides: Tensor, **masks: int) -> Tensor:
    """`x[:, None]`: the slice without new axes, then one `ExpandDims` each; the converter has both for any shape."""
    bounds = [tf.get_static_value(each) for each in (begin, end, strides)]
    entries = _entries(masks, len(bounds[0]))
    kept = [index for index, kind in enumerate(entries) if kind != "new"]
    bits = {
        name: sum(1 << position for position, index in enumerate(kept) if masks[name] >> index & 1)
        for name in _MASKS
        if name != "new_axis_mask"
    }
    begin, end, strides = (tf.constant(np.asarray(each)[kept], tf.int32) for each in bounds)
    x = tf.raw_ops.StridedSlice(input=x, begin=begin, end=end, strides=strides, new_axis_mask=0, **bits)
    for axis in new_axes(entries):
        x = tf.expand_dims(x, axis)
    return x


def _entries(masks: dict[str, int], count: int) -> list[str]:
    """Kind of each entry of a slice: `ellipsis`, `new`, `shrink` or `range`; TensorFlow's own precedence."""
    kinds = (("ellipsis", "ellipsis_mask"), ("new", "new_axis_mask"), ("shrink", "shrink_axis_mask"))
    return [next((kind for kind, mask in kinds if masks[mask] >> index & 1), "range") for index in range(count)]


def new_axes(entries: Sequence[str]) -> list[int]:
    """Returns the axes to expand, in order: those before an ellipsis from the left, then those after it from the right.

    Args:
        entries: list of `"ellipsis"`, `"new"`, `"shrink"` and `"range"`.
    """
    entries = list(entries)
    split = entries.index("ellipsis") if "ellipsis" in entries else len(entries)
    left, right = entries[:split], entries[split + 1 :][::-1]
    axes = [_kept_before(left, index) for index, kind in enumerate(left) if kind == "new"]
    return axes + [-1 - _kept_before(right, index) for index, kind in enumerate(right) if kind == "new"]


def _kept_before(entries: Sequence[str], index: int) -> int:
    return sum(kind != "shrink" for kind in entries[:index])


def _has_new_axes(node: Node) -> bool:
    return bool(node.attribute("new_axis_mask")) and all(node.value(position) is not None for position in (1, 2, 3))


def slice_gradient(shape: Tensor, begin: Tensor, end: Tensor, strides: Tensor, dy: Tensor, **masks: int) -> Tensor:
    """The gradient of a slice with steps of 1: a reshape and zeros around it."""
    known = tf.get_static_value(shape)
    sizes = tf.unstack(tf.cast(shape, tf.int32)) if known is None else np.asarray(known).tolist()
    first, last = (np.asarray(tf.get_static_value(each)).tolist() for each in (begin, end))
    positions = _positions(masks, len(sizes), len(first))
    ranges = [_range(length, each, first, last, masks) for length, each in zip(sizes, positions, strict=True)]
    kept = tf.reshape(dy, tf.stack([stop - start for start, stop in ranges]))
    pads = [tf.stack([start, length - stop]) for length, (start, stop) in zip(sizes, ranges, strict=True)]
    return tf.pad(kept, tf.stack(pads))


def _range(
    length: int | Tensor, position: int | None, begin: Sequence[int], end: Sequence[int], masks: dict[str, int]
) -> tuple[int | Tensor, int | Tensor]:
    """The first index and the end of a slice along one axis."""
    if position is None:
        return 0, length
    bit = 1 << position
    first = 0 if masks["begin_mask"] & bit else int(begin[position])
    start = _smaller(first + length if first < 0 else first, length)
    if masks["shrink_axis_mask"] & bit:
        return start, start + 1
    if masks["end_mask"] & bit:
        return start, length
    stop = int(end[position])
    return start, _smaller(stop + length if stop < 0 else stop, length)


def _smaller(first: int | Tensor, second: int | Tensor) -> int | Tensor:
    return min(first, second) if isinstance(first, int) and isinstance(second, int) else tf.minimum(first, second)


def _positions(masks: dict[str, int], rank: int, count: int) -> list[int | None]:
    """For each axis of the sliced tensor its position in the bounds, or None where the whole axis is taken.

    New axes have a position and no axis; an ellipsis stands for as many axes as there are left. What axes the gradient has
    makes no difference: it is reshaped.
    """
    added, ellipsis = masks["new_axis_mask"], masks["ellipsis_mask"]
    given = [each for each in range(count) if not added >> each & 1 and not ellipsis >> each & 1]
    if not ellipsis:
        return [*given, *[None] * (rank - len(given))]
    before = [each for each in given if (1 << each) < ellipsis]
    return [*before, *[None] * (rank - len(given)), *given[len(before) :]]


def _has_steps_of_one(node: Node) -> bool:
    """Whether the bounds of a slice are known, of all elements between them, and how many axes there are."""
    strides, rank = node.value(3), node.part.spec(node.inputs[0]).shape.num_elements()
    is_known = rank is not None and node.value(1) is not None and node.value(2) is not None
    return is_known and strides is not None and bool((strides == 1).all())


def empty_slice(x: Tensor, begin: Tensor, end: Tensor, strides: Tensor, **masks: int) -> Tensor:
    """LiteRT takes a size of 0 for all elements of the axis where the bounds of a slice are constants."""
    none = tf.cast(tf.minimum(tf.shape(x)[0], 0), begin.dtype)
    return tf.raw_ops.StridedSlice(input=x, begin=begin + none, end=end, strides=strides, **masks)


def _is_empty(node: Node) -> bool:
    """Whether a slice of constant bounds ends at 0 along an axis, so that it has no elements."""
    begin, end, strides = (node.value(each) for each in (1, 2, 3))
    if begin is None or end is None or strides is None:
        return False
    marks = [int(node.attribute(each)) for each in _MASKS[1:]]
    axes = np.flatnonzero((end == 0) & (strides > 0)).tolist()
    return any(not any(mark >> axis & 1 for mark in marks) for axis in axes)


def rolled(x: Tensor, shift: Tensor, axis: Tensor) -> Tensor:
    """Two slices and their concatenation for each axis."""
    shifts, axes = (np.atleast_1d(tf.get_static_value(each)).tolist() for each in (shift, axis))
    for number, along in zip(shifts, axes, strict=True):
        before = [slice(None)] * (along % x.shape.rank)
        start = -number % size(x, along % x.shape.rank)
        x = tf.concat([x[(*before, slice(start, None))], x[(*before, slice(None, start))]], along)
    return x


def _has_known_roll(node: Node) -> bool:
    return node.value(1) is not None and node.value(2) is not None


def tiled(x: Tensor, multiples: Tensor) -> Tensor:
    """A concatenation of copies. The converter forgets a `Tile` where the size of its operand is dynamic."""
    for axis, count in enumerate(np.asarray(tf.get_static_value(multiples)).tolist()):
        x = tf.concat([x] * count, axis) if count > 1 else x
    return x


def _has_dynamic_tiles(node: Node) -> bool:
    """Whether an axis of a dynamic size is repeated a few times."""
    sizes, counts = node.part.spec(node.inputs[0]).shape, node.value(1)
    if counts is None or sizes.rank is None or not (counts > 0).all():
        return False
    repeated = [count for size, count in zip(sizes, counts.tolist(), strict=True) if size is None and count > 1]
    return bool(repeated) and max(counts.tolist()) <= _MOST_COPIES


def mirrored_booleans(x: Tensor, paddings: Tensor, *, mode: str) -> Tensor:
    return tf.cast(tf.raw_ops.MirrorPad(input=tf.cast(x, tf.int32), paddings=paddings, mode=mode), tf.bool)


def squeezed_by_sum(x: Tensor, *, squeeze_dims: Sequence[int]) -> Tensor:
    """A sum over the axes of size 1, which does not need to know that they are."""
    return tf.reduce_sum(x, list(squeeze_dims))


def _is_squeezed_transposition(node: Node) -> bool:
    producer = node.producer(0)
    # Convolutions whose channels come first become transposed ones.
    is_transposed = producer is not None and (producer.op == "Transpose" or producer.attribute("data_format") == "NCHW")
    return is_transposed and bool(node.attribute("squeeze_dims")) and is_float32(node)


def unpacked(x: Tensor, *, num: int, axis: int) -> list[Tensor]:
    return [tf.gather(x, number, axis=axis) for number in range(num)]


def reversed_in_turn(x: Tensor, axes: Tensor) -> Tensor:
    """LiteRT reverses axes that are next to each other."""
    for axis in np.unique(np.asarray(tf.get_static_value(axes)) % x.shape.rank):
        x = tf.reverse(x, [int(axis)])
    return x


def _has_axes_apart(node: Node) -> bool:
    if not is_of_known_axis(node):
        return False
    rank = node.part.spec(node.inputs[0]).shape.rank
    axes = np.unique(np.asarray(node.value(1)) % rank) if rank else np.zeros(0)
    return len(axes) > 1 and bool((np.diff(axes) > 1).any())


def cross_product(x: Tensor, y: Tensor) -> Tensor:
    (x1, x2), (y1, y2) = ([tf.gather(each, order, axis=-1) for order in ([1, 2, 0], [2, 0, 1])] for each in (x, y))
    return x1 * y2 - x2 * y1


_CROSS, _UNPACKED = Decomposed(cross_product), Decomposed(unpacked, ("num", "axis"), is_int64)
_EMPTY_SLICE = Decomposed(empty_slice, _MASKS, _is_empty)
_SLICE_GRADIENT = Decomposed(slice_gradient, _MASKS, _has_steps_of_one)

OPERATIONS = (
    Operation("Cross", in_both(_CROSS), rounds=True),
    Operation("GatherV2", reads_weight=0),
    Operation("Identity", moves_weight=True),
    Operation("MirrorPad", {TFLITE: Decomposed(mirrored_booleans, ("mode",), is_boolean)}),
    Operation("Reshape", moves_weight=True),
    Operation("ReverseV2", {TFLITE: Decomposed(reversed_in_turn, when=_has_axes_apart)}),
    Operation("Roll", {TFLITE: Decomposed(rolled, when=_has_known_roll)}),
    Operation("Squeeze", {TFLITE: Decomposed(squeezed_by_sum, ("squeeze_dims",), _is_squeezed_transposition)}),
    Operation("StridedSlice", {TFLITE: (Decomposed(slice_then_new_axes, _MASKS, _has_new_axes), _EMPTY_SLICE)}),
    Operation("StridedSliceGrad", in_both(_SLICE_GRADIENT)),
    Operation("Tile", {TFLITE: Decomposed(tiled, when=_has_dynamic_tiles)}),
    Operation("Transpose", moves_weight=True),
    Operation("Unpack", {TFLITE: _UNPACKED}),
)
