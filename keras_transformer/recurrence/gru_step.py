"""One step of the gated recurrent unit (GRU) of Cho et al. (arXiv 1406.1078) and Bahdanau et al. (arXiv 1409.0473).

The reset gate acts on the state before the product: `U (r h)`, not `r (U h)`.
"""

from __future__ import annotations

from collections.abc import Sequence

import keras
from keras import ops

from keras_transformer.utils.types import Tensor


def recurrent_kernels(layer: keras.layers.Layer, name: str) -> list[keras.Variable]:
    """Returns the recurrent kernels of update gate, reset gate and candidate, `(n, n)` each."""
    return [
        layer.add_weight(
            name=f"{name}_{part}_kernel",
            shape=(layer.units, layer.units),
            initializer=layer.recurrent_initializer.clone(),
        )
        for part in ("update", "reset", "candidate")
    ]


def stack_kernels(kernels: Sequence[keras.Variable]) -> tuple[Tensor, Tensor]:
    """Returns the kernel of both gates, `(n, 2n)`, and that of the candidate, `(n, n)`."""
    update, reset, candidate = kernels
    return ops.concatenate([update, reset], axis=1), candidate


def gru_step(
    state: Tensor, candidate: Tensor, gates: Tensor, kernels: Sequence[Tensor], mask: Tensor | None = None
) -> Tensor:
    """Returns the next state.

    Args:
        state: float32 `(..., B, n)`.
        candidate: `(..., B, n)`: the input of the candidate.
        gates: `(..., B, 2n)`: the inputs of update gate and reset gate.
        kernels: as `stack_kernels` returns, or stacks of these, `(..., n, 2n)` and `(..., n, n)`.
        mask: float32 `(..., B, 1)`, 0 where the state does not change; None for no mask.
    """
    gate_kernel, candidate_kernel = kernels
    before = ops.cast(state, candidate.dtype)
    update, reset = ops.split(ops.sigmoid(gates + ops.matmul(before, gate_kernel)), 2, axis=-1)
    candidate = ops.tanh(candidate + ops.matmul(reset * before, candidate_kernel))
    update = ops.cast(update, "float32")
    update = update if mask is None else update * mask
    return state + update * (ops.cast(candidate, "float32") - state)
