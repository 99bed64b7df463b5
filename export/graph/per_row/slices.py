"""Operations that read or write a part of a tensor which depends on the index of each row."""

from __future__ import annotations

import tensorflow as tf

from keras_transformer.export.graph.per_row.computing import Rule
from keras_transformer.export.graph.per_row.step import Step
from keras_transformer.export.graph.per_row.values import PerRow, Stacked, Value, depends_on_row, joined, rank_of
from keras_transformer.utils.types import Tensor

_MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")


def slice_(step: Step) -> list[Value]:
    """A part of a tensor, which begins at the index of each row along one axis."""
    size, (axis, index) = step.plain(2), _start(step, 1)
    value = step.value(0)
    count = tf.cast(size, "int32")[axis]
    slots = tf.expand_dims(tf.cast(index, "int32"), 1) + tf.expand_dims(tf.range(count), 0)
    if isinstance(value, PerRow):
        return [PerRow(tf.gather(_rest(value.tensor, size, axis, 1), slots, axis=axis + 1, batch_dims=1))]
    rows, tensor = step.row_axis_of(0), _rest(value, size, axis, 0)
    if rows == 0 and axis > 0:
        return [tf.gather(tensor, slots, axis=axis, batch_dims=1)]
    if rows is not None:
        raise step.refused("takes rows by it")
    found = tf.gather(tensor, slots, axis=axis)
    order = [axis, *(each for each in range(rank_of(value) + 1) if each != axis)]
    return [PerRow(tf.transpose(found, order) if axis else found)]


def dynamic_update_slice(step: Step) -> list[Value]:
    """Writes a part of a tensor of the batch, which begins at the index of each row along one axis."""
    axis, index = _start(step, 2)
    tensor, update = step.plain(0), step.plain(1)
    if step.row_axis_of(0) != 0 or axis == 0:
        raise step.refused("writes what is no tensor of the batch")
    if index.shape.rank != 1:
        raise step.refused("writes at several places")
    sizes = tf.shape(update)
    ranges = [tf.range(sizes[each]) for each in range(axis + 1)]
    grid = [_along(each, number, axis + 1) for number, each in enumerate(ranges)]
    grid[axis] = grid[axis] + _along(tf.cast(index, "int32"), 0, axis + 1)
    indices = tf.stack([tf.broadcast_to(each, sizes[: axis + 1]) for each in grid], axis + 1)
    return [tf.tensor_scatter_nd_update(tensor, indices, update)]


def band(step: Step, lower: Tensor, upper: Tensor) -> list[Value]:
    """A part of the band of a square matrix of ones, such as a sliding window, which need not be made for it.

    Args:
        step: the slice of the band.
        lower, upper: int `()`: the numbers of its diagonals below and above the main one; negative for all.
    """
    starts, size = step.values[1], tf.cast(step.plain(2), "int32")
    begin, column = starts.parts if isinstance(starts, Stacked) else tf.unstack(step.plain(1))
    first = joined(begin)
    row = tf.expand_dims(first.tensor, 1) if isinstance(first, PerRow) else first
    rows = tf.expand_dims(tf.cast(row, "int32") + tf.range(size[0]), -1)
    columns = tf.cast(joined(column), "int32") + tf.range(size[1])
    below, above = rows - columns, columns - rows
    lower, upper = tf.cast(lower, "int32"), tf.cast(upper, "int32")
    found = tf.logical_and((below <= lower) | (lower < 0), (above <= upper) | (upper < 0))
    return [PerRow(found) if isinstance(first, PerRow) else found]


def strided_slice(step: Step) -> list[Value]:
    """A part of a tensor between constant places; of stacked tensors, one of them where it is taken out."""
    value = step.values[0]
    if isinstance(value, Stacked):
        part = _taken(step, value)
        if part is not None:
            return [part]
    found = joined(value)
    begin, end, strides = (step.plain(index) for index in (1, 2, 3))
    if not isinstance(found, PerRow):
        return list(step.emitted([found, begin, end, strides]))
    masks = {name: step.node.attr[name].i << 1 for name in _MASKS}
    masks |= {name: masks[name] | 1 for name in ("begin_mask", "end_mask")}
    first = [tf.constant([number], begin.dtype) for number in (0, 0, 1)]
    operands = [tf.concat([one, each], 0) for one, each in zip(first, (begin, end, strides), strict=True)]
    return [PerRow(step.emitted([found.tensor, *operands], **masks)[0])]


def gather(step: Step) -> list[Value]:
    """Elements of a tensor by their places, which may depend on the index."""
    params, indices, axis = step.value(0), step.value(1), int(step.number(2))
    if step.node.attr["batch_dims"].i or step.row_axis_of(0) is not None:
        raise step.refused("looks rows of the batch up")
    axis = axis + rank_of(params) if axis < 0 else axis
    if isinstance(params, PerRow):
        if isinstance(indices, PerRow):
            return [PerRow(tf.gather(params.tensor, indices.tensor, axis=axis + 1, batch_dims=1))]
        if step.row_axis_of(1) is not None:
            raise step.refused("looks rows of the batch up in it")
        return [PerRow(tf.gather(params.tensor, indices, axis=axis + 1))]
    if not isinstance(indices, PerRow):
        raise step.refused("takes an axis from it")
    found = tf.gather(params, indices.tensor, axis=axis)
    order = [axis, *(each for each in range(int(found.shape.rank)) if each != axis)]
    return [PerRow(tf.transpose(found, order) if axis else found)]


def _start(step: Step, operand: int) -> tuple[int, Tensor]:
    """The axis along which a part begins at the index, and the index `(B,)`; it begins at 0 along others."""
    starts = step.values[operand]
    if not isinstance(starts, Stacked):
        raise step.refused("begins at a place that is computed from it")
    (axis, index), *others = [(axis, each) for axis, each in enumerate(starts.parts) if depends_on_row(each)]
    rest = [tf.get_static_value(joined(each)) for each in starts.parts if not depends_on_row(each)]
    if others or any(each is None or each.any() for each in rest):
        raise step.refused("begins at several places")
    place = joined(index)
    if not isinstance(place, PerRow):
        raise step.refused("begins at a place that is computed from it")
    return axis, place.tensor


def _rest(tensor: Tensor, size: Tensor, axis: int, before: int) -> Tensor:
    """The part of a tensor along all axes but one. `before` axes in front are not part of the size."""
    shape = tf.shape(tensor)
    size = tf.cast(size, "int32")
    axis += before
    sizes = tf.concat([shape[:before], size], 0)
    sizes = tf.concat([sizes[:axis], shape[axis : axis + 1], sizes[axis + 1 :]], 0)
    return tf.slice(tensor, tf.zeros_like(sizes), sizes)


def _along(tensor: Tensor, axis: int, rank: int) -> Tensor:
    """A vector along one of so many axes."""
    return tf.reshape(tensor, [-1 if each == axis else 1 for each in range(rank)])


def _taken(step: Step, value: Stacked) -> Value | None:
    """The part of a stack that a slice takes out whole; None where it takes anything else."""
    begin, end, strides = (tf.get_static_value(joined(each)) for each in step.values[1:4])
    if begin is None or end is None or strides is None:
        return None
    masks = [step.node.attr[name].i for name in _MASKS]
    found: Value = value
    axis, taken = 0, 0  # Of the original tensor, and how many of its axes are gone.
    for number in range(len(begin)):
        begins, ends, ellipsis, new, shrinks = (bool(mask >> number & 1) for mask in masks)
        if ellipsis:
            axis += rank_of(value) - (len(begin) - 1)
            continue
        if new or strides[number] != 1:
            return None
        if shrinks:
            if not isinstance(found, Stacked) or found.axis != axis - taken:
                return None
            found = found.parts[int(begin[number])]
            taken += 1
        elif not (ends and (begins or begin[number] == 0)):
            return None
        axis += 1
    return found


RULES: dict[str, Rule] = {
    "GatherV2": gather,
    "Slice": slice_,
    "StridedSlice": strided_slice,
    "XlaDynamicUpdateSlice": dynamic_update_slice,
}
