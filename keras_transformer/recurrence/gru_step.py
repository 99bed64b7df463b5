"""One step of a gated recurrent network, as Cho et al. (arXiv 1406.1078) and Bahdanau et al. (arXiv 1409.0473) have it.

The reset gate acts on the state before the product: `U (r h)`, not `r (U h)`.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_transformer.utils.types import Tensor


def recurrent_kernels(layer: Any, name: str) -> list[keras.Variable]:
    """The matrices of a state in its update gate, its reset gate and its candidate, each `(n, n)`."""
    return [
        layer.add_weight(
            name=f"{name}_{part}_kernel",
            shape=(layer.units, layer.units),
            initializer=layer.recurrent_initializer.clone(),
        )
        for part in ("update", "reset", "candidate")
    ]


def stack_kernels(kernels: Tensor) -> tuple[Tensor, Tensor]:
    """The kernel of both gates `(n, 2n)`, and that of the candidate `(n, n)`."""
    update, reset, candidate = kernels
    return ops.concatenate([update, reset], axis=1), candidate


def gru_step(state: Tensor, candidate: Tensor, gates: Tensor, kernels: Tensor, mask: Tensor = None) -> Tensor:
    """The next state.

    Args:
        state: float32 `(..., B, n)`.
        candidate: `(..., B, n)`: what comes in, for the candidate.
        gates: `(..., B, 2n)`: what comes in, for the update gate and the reset gate.
        kernels: as `stack_kernels` gives them, or stacks of these, `(..., n, 2n)` and `(..., n, n)`.
        mask: float32 `(..., B, 1)`, 0 where the state stays as it is; None for nowhere.
    """
    gate_kernel, candidate_kernel = kernels
    before = ops.cast(state, candidate.dtype)
    update, reset = ops.split(ops.sigmoid(gates + ops.matmul(before, gate_kernel)), 2, axis=-1)
    candidate = ops.tanh(candidate + ops.matmul(reset * before, candidate_kernel))
    update = ops.cast(update, "float32")
    update = update if mask is None else update * mask
    return state + update * (ops.cast(candidate, "float32") - state)
