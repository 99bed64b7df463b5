"""Scan of matrix states whose transitions are of low rank, with a gradient of the same form."""

from __future__ import annotations

from typing import Any

from keras import ops

from keras_transformer.recurrence.sequential import sequential_scan
from keras_transformer.utils.types import Tensor


def state_scan(left: Tensor, writes: Tensor, reads: Tensor, added: Tensor, first: Tensor | None) -> Tensor:
    """Returns `S_i = a_i S_{i - 1} - W_i (P_i S_{i - 1}) + D_i` for i = 1, ..., n, in a loop over i.

    The gradient is a scan over the transposed transitions, from the last to the first. A gradient of the loop itself would
    grow with `n²`.

    Args:
        left: float `(n, R, 1 | M, 1)`: a, one number or one for each row of the state.
        writes: float `(n, R, M, C)`: W.
        reads: float `(n, R, C, M)`: P.
        added: float `(n, R, M, H)`: D.
        first: float `(R, M, H)`: S_0.

    Returns:
        `(n, R, M, H)`.

    Example:

    >>> import numpy as np
    >>> column = lambda *x: np.array(x, "float32").reshape(-1, 1, 1, 1)
    >>> states = state_scan(column(2.0, 1.0), column(1.0, 1.0), column(1.0, 3.0), column(5.0, 1.0), column(4.0)[0])
    >>> states.numpy().ravel().tolist()
    [9.0, -17.0]
    """

    @ops.custom_gradient
    def scan(left: Tensor, writes: Tensor, reads: Tensor, added: Tensor, first: Tensor) -> Any:
        states = _scan(left, writes, reads, added, first)

        def gradient(*arguments: Tensor, upstream: Tensor | None = None) -> tuple[Tensor, ...]:
            upstream = arguments[0] if upstream is None else upstream
            # The last state has no successor: the scan begins at zero, whatever its first transition is.
            back = _scan(
                _backwards(left),
                _backwards(_transposed(reads)),
                _backwards(_transposed(writes)),
                ops.flip(upstream, axis=0),
                ops.zeros_like(first),
            )
            of_states = ops.flip(back, axis=0)
            before = ops.concatenate([ops.expand_dims(first, 0), states[:-1]], axis=0)
            written = ops.matmul(_transposed(writes), of_states)
            of_writes = -ops.matmul(of_states, _transposed(ops.matmul(reads, before)))
            of_reads = -ops.matmul(written, _transposed(before))
            of_left = ops.sum(before * of_states, axis=(2, 3) if left.shape[2] == 1 else 3, keepdims=True)
            of_first = left[0] * of_states[0] - ops.matmul(_transposed(reads[:1])[0], written[0])
            return of_left, of_writes, of_reads, of_states, of_first

        return states, gradient

    return scan(left, writes, reads, added, first)


def _scan(left, writes, reads, added, first):
    def step(index, carry, added, left, writes, reads):
        state = left * carry[0] - ops.matmul(writes, ops.matmul(reads, carry[0])) + added
        return (state,), state

    return sequential_scan(step, (first,), (added, left, writes, reads))[1]


def _backwards(x):
    """The transitions of a scan from the last step to the first."""
    return ops.flip(ops.concatenate([x[1:], x[:1]], axis=0), axis=0)


def _transposed(x):
    return ops.transpose(x, (0, 1, 3, 2))
