"""Gathers and scatters along the second axis of a batch, for all rows at once."""

from __future__ import annotations

from keras import ops

from keras_transformer.utils.types import Tensor


def take_of_row(table: Tensor, indices: Tensor) -> Tensor:
    """Gathers entries of each row of `table`, `(B, S, ...)`, at `indices`, int32 `(B, T)`."""
    size = ops.shape(table)[1]
    flat = ops.reshape(table, (-1, *table.shape[2:]))
    return ops.take(flat, indices + _rows(indices) * size, axis=0)


def write_to_row(slab: Tensor, slots: Tensor, update: Tensor) -> Tensor:
    """Returns `slab`, `(B, S)`, with the entries of `update`, `(B, T)`, at `slots`, int32 `(B, T)`."""
    indices = ops.stack([ops.reshape(_rows(slots), (-1,)), ops.reshape(slots, (-1,))], axis=1)
    return ops.scatter_update(slab, indices, ops.reshape(update, (-1,)))


def _rows(slots):
    return ops.expand_dims(ops.arange(ops.shape(slots)[0], dtype="int32"), 1) + ops.zeros_like(slots)
