"""Distances between keys and queries."""

from __future__ import annotations

from keras import ops

from keras_transformer.utils.types import Tensor


def distances(query_positions: Tensor, key_positions: Tensor) -> Tensor:
    """Returns key position minus query position, int32 `(1 | B, T, S)`. Positions are `(T,)` or `(B, T)`, same for S."""
    return ops.expand_dims(rows(key_positions), 1) - ops.expand_dims(rows(query_positions), 2)


def rows(positions: Tensor) -> Tensor:
    """Returns positions `(T,)` or `(B, T)` as int32 `(1 | B, T)`."""
    positions = ops.cast(positions, "int32")
    return ops.expand_dims(positions, 0) if len(positions.shape) == 1 else positions
