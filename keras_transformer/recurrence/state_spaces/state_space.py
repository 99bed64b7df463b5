"""Chunked linear state space models, one for each input: `h_t = A h_{t - 1} + B u_t`, `y_t = C h_t`, in real numbers.

Within a chunk, outputs are a product with the Toeplitz matrix of the kernel; between chunks, a state is carried. In the
shapes, D is the number of inputs, M that of the outputs of each, S the width of a state, C the chunk size, n the number of
chunks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TypeAlias

from keras import ops

from keras_transformer.attention.partition.bands import block_count, pad_length
from keras_transformer.backend.kernels.scan import linear_scan
from keras_transformer.utils.types import Tensor

Transition: TypeAlias = tuple[Tensor, ...]


@dataclasses.dataclass(frozen=True)
class ChunkedSystem:
    """The matrices from the inputs and the state of a chunk of C tokens to its outputs and the next state. Inputs are
    first.

    Attributes:
        kernel: `(D, M, C)`: `C A^t B`, the impulse responses.
        reads: `(D, S, M · C)`: `C A^(t + 1)`, from the state before the chunk to each output.
        writes: `(D, C, S)`: `A^(C - 1 - t) B`, from each input to the state after the chunk.
        transition: tuple of tensors: `A^C`, as `apply` and `square` take it.
        apply: function of a transition `(D, ...)` and a tuple of one `(D, m, B, S)`, to such a tuple.
        square: function of a transition.
        advance: function of states `(D, B, S)` and exponents int `(B,)` below C: multiplies each state with that power of A.
    """

    kernel: Tensor
    reads: Tensor
    writes: Tensor
    transition: Transition
    apply: Callable[[Transition, tuple[Tensor]], tuple[Tensor]]
    square: Callable[[Transition], Transition]
    advance: Callable[[Tensor, Tensor], Tensor]

    @property
    def size(self) -> int:
        return self.kernel.shape[2]

    @property
    def channels(self) -> int:
        return self.kernel.shape[1]


def system_response(
    system: ChunkedSystem, x: Tensor, mask: Tensor | None = None, state: Tensor | None = None
) -> tuple[Tensor, Tensor | None]:
    """Returns the outputs of a system, and its state after the last token.

    Time grows with `T · (C + S) · D`, memory with `T · D` and, for the states before each chunk, `T / C · S · D`.

    Args:
        system: `ChunkedSystem`.
        x: float32 `(B, T, D)`, zeros at padding.
        mask: float32 `(B, T)`, 0 for padding, or None.
        state: `(B, D, S)`: the state before the first token. None for zeros.

    Returns:
        `(B, T, M · D)`; and the state after the last token that is not padding, or None if `state` is None. With a state,
        padding must be on the right.
    """
    length, width, size = ops.shape(x)[1], x.shape[2], system.size
    chunks = block_count(length, size)
    padded = pad_length(x, 0, chunks * size - length)
    # Channels first, then chunks, then examples: (D, n, B, C).
    blocks = ops.transpose(ops.reshape(padded, (-1, chunks, size, width)), (3, 1, 0, 2))
    rows = ops.reshape(blocks, (width, -1, size))  # (D, n · B, C)
    y = ops.matmul(rows, _toeplitz(system.kernel))  # (D, n · B, M · C)
    following = None
    if state is not None or not (isinstance(chunks, int) and chunks == 1):
        states = _states(system, rows, ops.shape(x)[0], chunks, state)  # (D, n + 1, B, S), or n
        before = states if state is None else states[:, :-1]
        y = y + ops.matmul(ops.reshape(before, (width, -1, ops.shape(states)[3])), system.reads)
        if state is not None:
            is_whole = mask is None and isinstance(length, int) and length % size == 0
            following = states[:, -1] if is_whole else _partial(system, blocks, states, _lengths(x, mask))
            following = ops.transpose(following, (1, 0, 2))
    if system.channels == 1:
        y = ops.transpose(ops.reshape(y, (width, chunks, -1, size)), (2, 1, 3, 0))
    else:
        y = ops.reshape(y, (width, -1, system.channels, size))  # (D, n · B, M, C)
        y = ops.reshape(ops.transpose(y, (1, 3, 2, 0)), (chunks, -1, size, system.channels * width))
        y = ops.transpose(y, (1, 0, 2, 3))
    return ops.reshape(y, (-1, chunks * size, system.channels * width))[:, :length], following


def _toeplitz(kernel):
    """Returns the Toeplitz matrices `(D, C, M · C)` of a kernel `(D, M, C)`: row s is it, shifted s columns to the right."""
    inputs, channels, size = kernel.shape
    if channels > 1:
        square = _toeplitz(ops.reshape(kernel, (-1, 1, size)))
        square = ops.transpose(ops.reshape(square, (inputs, channels, size, size)), (0, 2, 1, 3))
        return ops.reshape(square, (inputs, size, channels * size))
    width, kernel = inputs, kernel[:, 0]
    # Rows of length 2 C are read with length 2 C - 1, which shifts each row by one more column.
    row = ops.concatenate([kernel, ops.zeros((width, size), kernel.dtype)], axis=1)
    long = ops.reshape(ops.tile(row, (1, size)), (width, -1))[:, : size * (2 * size - 1)]
    return ops.reshape(long, (width, size, 2 * size - 1))[:, :, :size]


def _states(system, rows, batch_size, chunks, state):
    """Returns the states before each chunk and, if `state` is given, after the last."""
    width = rows.shape[0]
    sums = ops.matmul(rows, system.writes)
    sums = ops.reshape(sums, (width, chunks, batch_size, system.writes.shape[2]))
    first = ops.zeros_like(sums[:, :1])
    if state is not None:
        first = ops.expand_dims(ops.transpose(ops.cast(state, sums.dtype), (1, 0, 2)), 1)
    else:
        sums = sums[:, :-1]
    return linear_scan(system.apply, system.square, system.transition, (ops.concatenate([first, sums], axis=1),))[0]


def _lengths(x, mask):
    """Returns the number of tokens of each row that are not padding, int32 `(B,)`."""
    mask = ops.ones_like(x[:, :, 0]) if mask is None else mask
    return ops.cast(ops.sum(mask, axis=1), "int32")


def _partial(system, blocks, states, lengths):
    """Returns the state `(D, B, S)` after the last token of each row, which may end within a chunk.

    Args:
        blocks: inputs `(D, n, B, C)`.
        states: before each chunk and after the last, `(D, n + 1, B, S)`.
        lengths: int32 `(B,)`.
    """
    size, chunks = system.size, ops.shape(blocks)[1]
    chunk, rest = lengths // size, lengths % size
    picked = ops.transpose(ops.one_hot(chunk, chunks + 1, dtype=blocks.dtype))  # (n + 1, B)
    picked = ops.expand_dims(ops.expand_dims(picked, 0), 3)
    before = ops.sum(states * picked, axis=1)  # (D, B, S)
    inputs = ops.sum(blocks * picked[:, :-1], axis=1)  # (D, B, C); zeros if a row ends with its chunk
    # The tokens that were read are moved to the end of the chunk, as `writes` requires.
    columns = ops.expand_dims(ops.arange(size, dtype="int32"), 0) + ops.expand_dims(rest, 1) - size  # (B, C)
    moved = ops.one_hot(columns, size, dtype=blocks.dtype)  # (B, C, C); none before the first
    inputs = ops.matmul(ops.transpose(inputs, (1, 0, 2)), ops.transpose(moved, (0, 2, 1)))
    inputs = ops.transpose(inputs, (1, 0, 2))
    return system.advance(before, rest) + ops.matmul(inputs, system.writes)
