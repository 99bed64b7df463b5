"""How far keys stand from queries."""

from keras import ops


def distances(query_positions, key_positions):
    """Key position minus query position, int32 `(1 | B, T, S)`; positions are `(T,)` or `(B, T)`, and alike for S."""
    return ops.expand_dims(rows(key_positions), 1) - ops.expand_dims(rows(query_positions), 2)


def rows(positions):
    """`(T,)` or `(B, T)` to int32 `(1 | B, T)`."""
    positions = ops.cast(positions, "int32")
    return ops.expand_dims(positions, 0) if len(positions.shape) == 1 else positions
