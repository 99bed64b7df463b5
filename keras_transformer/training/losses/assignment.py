"""The assignment problem, solved in the graph."""

from __future__ import annotations

from typing import NamedTuple

from keras import ops

from keras_transformer.utils.types import Tensor

# Larger than any cost, for costs that are infinite or NaN: such a pair is chosen only if nothing else is left.
_UNUSABLE = 1e6


class _State(NamedTuple):
    """Potentials of rows `(B, M)` and columns `(B, Q)`, the column of each row and the row of each column, or -1."""

    of_rows: Tensor
    of_columns: Tensor
    columns: Tensor
    rows: Tensor


def assign(cost: Tensor, valid: Tensor) -> Tensor:
    """Columns of the cheapest assignment of rows to different columns, exactly: the Hungarian algorithm.

        argmin_s  sum_m cost[m, s(m)]     over all one-to-one s

    It finds shortest augmenting paths, row by row, for all matrices of a batch at once. It is a loop of `keras.ops`, so that
    it runs inside a compiled training step on every backend, with XLA too: for M rows and Q columns at most `M (M + 1) / 2`
    steps over `(B, Q)`, and about M where rows want different columns. No gradient passes.

    Args:
        cost: float `(B, M, Q)`, with `M <= Q`. Infinite and NaN costs count as 10^6.
        valid: bool `(B, M)`. Rows that are False get no column.

    Returns:
        int32 `(B, M)`: the column of each row, or -1.

    Example:

    >>> import numpy as np
    >>> cost = np.array([[[4.0, 1.0, 3.0], [2.0, 0.0, 5.0]]], "float32")
    >>> np.asarray(assign(cost, np.array([[True, True]]))).tolist()
    [[1, 0]]

    Reference: Crouse, On implementing 2D rectangular assignment algorithms, IEEE Transactions on Aerospace and Electronic
    Systems 52, 2016; as in SciPy's `linear_sum_assignment`. In float32 the total is optimal up to rounding.
    """
    cost = ops.stop_gradient(ops.cast(cost, "float32"))
    # NaN is not below infinity either.
    cost = ops.where(ops.abs(cost) < float("inf"), cost, _UNUSABLE)
    valid = ops.cast(valid, "bool")
    of_rows, of_columns = ops.zeros_like(cost[:, :, 0]), ops.zeros_like(cost[:, 0])
    state = _State(of_rows, of_columns, _none(of_rows), _none(of_columns))
    numbers = ops.arange(ops.shape(cost)[1], dtype="int32")
    last = ops.max(ops.where(valid, numbers + 1, 0))

    def place(index, *state):
        return (index + 1, *_augment(cost, _take(valid, _fill(index, valid)), index, _State(*state)))

    return _State(*ops.while_loop(lambda index, *_: index < last, place, (_scalar(0), *state))[1:]).columns


def _augment(cost: Tensor, active: Tensor, index: Tensor, state: _State) -> _State:
    """Finds the shortest augmenting path of row `index` of each matrix that is active, `(B,)`, and moves rows along it."""
    infinite = ops.full_like(state.of_columns, float("inf"))
    never = ops.zeros_like(state.of_columns, dtype="bool")
    row = _fill(index, active)
    distance = ops.zeros_like(cost[:, 0, 0])

    def search(active, row, column, distance, shortest, path, seen):
        reach = ops.expand_dims(distance - _take(state.of_rows, row), 1) + _row(cost, row) - state.of_columns
        is_shorter = ops.logical_and(_wide(active), ops.logical_and(ops.logical_not(seen), reach < shortest))
        shortest = ops.where(is_shorter, reach, shortest)
        path = ops.where(is_shorter, ops.expand_dims(row, 1), path)
        nearest = ops.cast(ops.argmin(ops.where(seen, float("inf"), shortest), axis=1), "int32")
        column = ops.where(active, nearest, column)
        distance = ops.where(active, _take(shortest, column), distance)
        seen = ops.logical_or(seen, ops.logical_and(_wide(active), _is_at(column, seen)))
        owner = _take(state.rows, column)
        active = ops.logical_and(active, owner >= 0)
        return active, ops.where(active, owner, row), column, distance, shortest, path, seen

    start = (active, row, _fill(0, active), distance, infinite, _none(state.of_columns), never)
    found = ops.while_loop(lambda active, *_: ops.any(active), search, start)
    _, _, column, distance, shortest, path, seen = found
    state = _updated_potentials(state, index, active, distance, shortest, seen)
    return _moved(state, index, active, column, path)


def _updated_potentials(state, index, active, distance, shortest, seen):
    """The potentials after a search: reduced costs stay positive, and zero along the path."""
    distance = ops.expand_dims(distance, 1)
    is_start = ops.logical_and(_wide(active), _is_at(_fill(index, active), state.of_rows))
    has_column = state.columns >= 0
    columns = ops.maximum(state.columns, 0)
    was_seen = ops.logical_and(has_column, ops.take_along_axis(seen, columns, axis=1))
    slack = distance - ops.take_along_axis(shortest, columns, axis=1)
    of_rows = state.of_rows + ops.where(is_start, distance, ops.where(was_seen, slack, 0.0))
    of_columns = state.of_columns - ops.where(seen, distance - shortest, 0.0)
    return state._replace(of_rows=of_rows, of_columns=of_columns)


def _moved(state, index, active, column, path):
    """The assignment after the rows along a path have moved to their next columns."""

    def move(active, column, columns, rows):
        row = _take(path, column)
        following = _take(columns, row)
        columns = ops.where(ops.logical_and(_wide(active), _is_at(row, columns)), ops.expand_dims(column, 1), columns)
        rows = ops.where(ops.logical_and(_wide(active), _is_at(column, rows)), ops.expand_dims(row, 1), rows)
        active = ops.logical_and(active, ops.not_equal(row, index))
        return active, ops.where(active, following, column), columns, rows

    start = (active, column, state.columns, state.rows)
    _, _, columns, rows = ops.while_loop(lambda active, *_: ops.any(active), move, start)
    return state._replace(columns=columns, rows=rows)


def _scalar(value: int) -> Tensor:
    return ops.convert_to_tensor(value, dtype="int32")


def _none(like):
    """-1 everywhere, int32."""
    return ops.zeros_like(like, dtype="int32") - 1


def _fill(value, like):
    """int32 `(B,)` of one value."""
    return ops.zeros_like(like if len(like.shape) == 1 else like[:, 0], dtype="int32") + value


def _wide(x):
    return ops.expand_dims(x, 1)


def _take(table, index):
    """The element at `index`, `(B,)`, of each row of a table `(B, K)`; of -1 any element."""
    index = ops.expand_dims(ops.maximum(index, 0), 1)
    return ops.take_along_axis(table, index, axis=1)[:, 0]


def _row(cost, row):
    return ops.take_along_axis(cost, ops.reshape(row, (-1, 1, 1)), axis=1)[:, 0]


def _is_at(index, like):
    """Whether an element of a table like this is at `index`, `(B,)`."""
    return ops.equal(ops.arange(ops.shape(like)[1], dtype="int32"), ops.expand_dims(index, 1))
