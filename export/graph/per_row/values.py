"""What a tensor of a traced function is, where each row of the batch has an index of its own."""

from __future__ import annotations

import dataclasses
from typing import TypeAlias

import tensorflow as tf

from keras_transformer.export.errors import InvalidModelError
from keras_transformer.utils.types import Tensor


@dataclasses.dataclass(frozen=True)
class PerRow:
    """A tensor that depends on the index, and on nothing else of the rows.

    Args:
        tensor: `(B, ...)`: its values for the index of each row, where the traced function has `(...)`.
    """

    tensor: Tensor

    @property
    def rank(self) -> int:
        """int: its rank in the traced function."""
        return int(self.tensor.shape.rank) - 1


@dataclasses.dataclass(frozen=True)
class Stacked:
    """Tensors that the traced function stacks. They are kept apart while they are only stacked and taken out again.

    Args:
        axis: int >= 0, along which they are stacked.
        parts: the tensors.
    """

    axis: int
    parts: tuple[Value, ...]

    @property
    def rank(self) -> int:
        """int: its rank in the traced function."""
        return rank_of(self.parts[0]) + 1


Value: TypeAlias = "Tensor | PerRow | Stacked"


def rank_of(value: Value) -> int:
    """The rank of a value in the traced function."""
    return value.rank if isinstance(value, (PerRow, Stacked)) else int(value.shape.rank)


def depends_on_row(value: Value) -> bool:
    """Whether a value has an axis of rows that the traced function does not have."""
    return isinstance(value, PerRow) or (isinstance(value, Stacked) and any(map(depends_on_row, value.parts)))


def joined(value: Value) -> Tensor | PerRow:
    """A value as one tensor."""
    if not isinstance(value, Stacked):
        return value
    parts = [joined(each) for each in value.parts]
    rows = next((each.tensor for each in parts if isinstance(each, PerRow)), None)
    if rows is None:
        return tf.stack(parts, value.axis)
    count = tf.shape(rows)[0]
    return PerRow(tf.stack([with_rows(each, count) for each in parts], value.axis + 1))


def plain(value: Value) -> Tensor:
    """A value that depends on more than the index as one tensor.

    Raises:
        InvalidModelError: it depends on the index alone.
    """
    found = joined(value)
    if isinstance(found, PerRow):
        raise InvalidModelError("a result of the model depends on the position of the tokens alone")
    return found


def with_rows(value: Tensor | PerRow, count: Tensor) -> Tensor:
    """A value with the axis of rows: one that is the same for all of them is repeated."""
    if isinstance(value, PerRow):
        return value.tensor
    return tf.broadcast_to(tf.expand_dims(value, 0), tf.concat([[count], tf.shape(value)], 0))


def aligned(value: PerRow, rank: int, batch_axis: int | None) -> Tensor:
    """A value with as many axes as a result of the traced function has, to compute with other tensors by broadcasting.

    Args:
        value: `PerRow`.
        rank: of the result in the traced function.
        batch_axis: its axis of rows; None where it has none, and gets one in front.

    Returns:
        A tensor of rank `rank`, with the rows at `batch_axis`, or of rank `rank + 1`, with the rows in front.
    """
    tensor, missing = value.tensor, rank - value.rank
    if batch_axis is None:
        return _with_axes(tensor, missing)
    if batch_axis < missing:
        tensor = _with_axes(tensor, missing - 1)
    else:
        tensor = tf.squeeze(_with_axes(tensor, missing), [batch_axis + 1])
    if batch_axis == 0:
        return tensor
    order = [*range(1, rank)]
    return tf.transpose(tensor, [*order[:batch_axis], 0, *order[batch_axis:]])


def _with_axes(tensor: Tensor, count: int) -> Tensor:
    """A tensor with further axes of size 1 behind that of the rows."""
    for _ in range(count):
        tensor = tf.expand_dims(tensor, 1)
    return tensor
