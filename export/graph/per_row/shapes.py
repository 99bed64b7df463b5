"""Operations of shapes on tensors that depend on the index of each row."""

from __future__ import annotations

import tensorflow as tf

from keras_transformer.export.graph.per_row.computing import Rule
from keras_transformer.export.graph.per_row.step import Step
from keras_transformer.export.graph.per_row.values import PerRow, Stacked, Value, aligned, joined, rank_of, with_rows
from keras_transformer.utils.types import Tensor


def expand_dims(step: Step) -> list[Value]:
    """Adds an axis of size 1."""
    axis = int(step.number(1))
    return [PerRow(tf.expand_dims(_rows(step), axis + 1 if axis >= 0 else axis))]


def squeeze(step: Step) -> list[Value]:
    """Takes axes of size 1 away."""
    tensor, axes = _rows(step), step.node.attr["squeeze_dims"].list.i
    if not axes:
        sizes = tensor.shape.as_list()[1:]
        if None in sizes:
            raise step.refused("takes all axes of size 1 away")
        axes = [axis for axis, size in enumerate(sizes) if size == 1]
    return [PerRow(tf.squeeze(tensor, [axis + 1 if axis >= 0 else axis for axis in axes]))]


def reshape(step: Step) -> list[Value]:
    """Gives a tensor another shape."""
    tensor = _rows(step)
    if step.batch_axis is not None:
        raise step.refused("gives it the shape of the batch")
    return [PerRow(tf.reshape(tensor, _row_shape(tensor, step.plain(1))))]


def transpose(step: Step) -> list[Value]:
    """Changes the order of the axes."""
    return [PerRow(tf.transpose(_rows(step), [0, *(int(axis) + 1 for axis in step.number(1))]))]


def broadcast_to(step: Step) -> list[Value]:
    """Repeats a tensor up to a shape, which may be that of the batch."""
    shape, value, axis = step.plain(1), step.value(0), step.batch_axis
    if not isinstance(value, PerRow):
        raise step.refused("takes a shape from it")
    tensor = aligned(value, step.rank, axis)
    return [step.result(tf.broadcast_to(tensor, _row_shape(tensor, shape) if axis is None else shape))]


def tile(step: Step) -> list[Value]:
    """Repeats a tensor so many times along each axis, which may be once for each row."""
    value, times, axis = step.value(0), step.plain(1), step.batch_axis
    if not isinstance(value, PerRow):
        raise step.refused("takes a number of repetitions from it")
    tensor = aligned(value, step.rank, axis)
    if axis is None:
        return [PerRow(tf.tile(tensor, tf.concat([[1], tf.cast(times, "int32")], 0)))]
    times = tf.tensor_scatter_nd_update(times, [[axis]], tf.ones((1,), times.dtype))
    return [tf.tile(tensor, times)]


def shape(step: Step) -> list[Value]:
    """The shape, without the axis of rows; of stacked tensors, with the axis of the stack."""
    value = step.values[0]
    dtype = tf.as_dtype(step.node.attr["out_type"].type)
    if not isinstance(value, Stacked):
        return [tf.shape(_rows(step), dtype)[1:]]
    part = joined(value.parts[0])
    sizes = tf.shape(part.tensor, dtype)[1:] if isinstance(part, PerRow) else tf.shape(part, dtype)
    count = tf.constant([len(value.parts)], dtype)
    return [tf.concat([sizes[: value.axis], count, sizes[value.axis :]], 0)]


def pack(step: Step) -> list[Value]:
    """Stacks tensors."""
    axis = step.node.attr["axis"].i
    return [Stacked(int(axis) + step.rank if axis < 0 else int(axis), tuple(step.values))]


def unpack(step: Step) -> list[Value]:
    """Takes a stack apart."""
    value, axis = step.values[0], int(step.node.attr["axis"].i)
    axis = axis + rank_of(value) if axis < 0 else axis
    if isinstance(value, Stacked) and value.axis == axis:
        return list(value.parts)
    found = joined(value)
    if isinstance(found, PerRow):
        return [PerRow(each) for each in tf.unstack(found.tensor, step.node.attr["num"].i, axis + 1)]
    return list(step.emitted([found]))


def concatenate(step: Step) -> list[Value]:
    """Joins tensors along an axis."""
    axis, values = int(step.number(len(step.values) - 1)), [joined(each) for each in step.values[:-1]]
    if step.batch_axis is not None:
        raise step.refused("joins it with the rows of the batch")
    count = tf.shape(next(each.tensor for each in values if isinstance(each, PerRow)))[0]
    return [PerRow(tf.concat([with_rows(each, count) for each in values], axis + 1 if axis >= 0 else axis))]


def split(step: Step) -> list[Value]:
    """Takes a tensor apart along an axis into equal parts."""
    axis, value = int(step.number(0)), step.value(1)
    if not isinstance(value, PerRow):
        raise step.refused("takes an axis from it")
    count = step.node.attr["num_split"].i
    return [PerRow(each) for each in tf.split(value.tensor, count, axis + 1 if axis >= 0 else axis)]


def _rows(step: Step) -> Tensor:
    """The tensor of the first input."""
    value = step.value(0)
    if not isinstance(value, PerRow):
        raise step.refused("takes a shape from it")
    return value.tensor


def _row_shape(tensor: Tensor, shape: Tensor) -> Tensor:
    """A shape with the rows of a tensor in front."""
    return tf.concat([tf.shape(tensor)[:1], tf.cast(shape, "int32")], 0)


RULES: dict[str, Rule] = {
    "BroadcastTo": broadcast_to,
    "ConcatV2": concatenate,
    "ExpandDims": expand_dims,
    "Pack": pack,
    "Reshape": reshape,
    "Shape": shape,
    "Split": split,
    "Squeeze": squeeze,
    "Tile": tile,
    "Transpose": transpose,
    "Unpack": unpack,
}
