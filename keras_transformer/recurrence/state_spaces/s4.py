"""S4: state space models with a diagonal plus low-rank transition, initialized with HiPPO."""

from __future__ import annotations

import numpy as np
from keras import ops

from keras_transformer.recurrence.state_spaces.s4_layer import S4Layer
from keras_transformer.recurrence.state_spaces.state_space import ChunkedSystem
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import ArrayLike


@serializable
class S4(S4Layer):
    """S4: `GLU(activation(y + d u))`, where y is the response of a linear state space model per channel to the input u.

    The system is `h' = (Λ - p p*) h + b u`, `y = 2 Re(c h)` with `state_dim / 2` complex numbers in Λ, p, b, c and h: one
    of each conjugate pair. It is discretized with step Δ by the bilinear transform, in closed form. The chunked form is a
    convolution if the chunk is as long as the sequence, and a recurrence for one token. It is computed in float32 under
    every dtype policy, without complex numbers. For state width S, time grows with `T · (C + S + S² / C · log(T / C)) · D`,
    and `S³ · log C · D` once for the powers of the transition; memory with `T · D · (1 + S / C)`.

    Args:
        state_dim: even int >= 2. Width of the state of each channel. Defaults to 64.
        min_step, max_step: floats, 0 < min_step <= max_step. Range of the initial steps Δ. Defaults to 0.001 and 0.1.
        chunk_size: int >= 1. C. Defaults to 64. It changes only the cost.
        activation: defaults to "gelu".
        kernel_initializer: initializer of the output projections.
        seed: int or None. Seed of the initial steps and outputs.
        channels: int >= 1. M: responses of each system, with M vectors c and skip weights d, which share a state. The output
            projections take all `M · D`. Defaults to 1.

    Call arguments: see `Recurrence`; `positions` are not read.

    Returns:
        `(B, T, D)`; with a cache, `(output, next_cache)`. The cache is "state" `(B, D, state_dim)`, real parts and then
        imaginary ones; float32.

    Raises:
        ValueError: odd `state_dim`; steps that are not positive; a call that is not causal; scores, an `attention_mask`, or
            cross-attention.

    Padding is an input of zeros. Padding on the right of new tokens does not change the state. Export: all three formats,
    with and without a cache.

    Example:

    >>> import numpy as np
    >>> layer = S4(state_dim=8)
    >>> tuple(layer(np.ones((1, 3, 4), "float32")).shape)
    (1, 3, 4)

    Reference: Gu et al., Efficiently Modeling Long Sequences with Structured State Spaces, arXiv 2111.00396, section 3 and
    appendix C; HiPPO-LegS of rank one. Deviations: the kernel is computed from powers of the transition, where the paper
    has a Cauchy kernel and a Fourier transform; each channel has its own Λ, p and b, which the paper ties in part.
    """

    def _build_system(self, width):
        self._add_steps(width)
        rates, low_rank, inputs = hippo(self.state_dim)
        half = self.state_dim // 2
        starts = {
            "log_decay": np.log(-rates.real),
            "frequency": rates.imag,
            "low_rank_real": low_rank.real,
            "low_rank_imaginary": low_rank.imag,
            "input_real": inputs.real,
            "input_imaginary": inputs.imag,
        }
        for name, start in starts.items():
            self._add(name, (width, half), np.tile(start, (width, 1)))
        self._add_outputs(width, half)

    def _pair(self, name):
        return ops.concatenate([self._float(f"{name}_real"), self._float(f"{name}_imaginary")], axis=1)

    def _discrete(self):
        """Returns `A`, `(D, S, S)`, and `B`, `(D, S)`, of one step."""
        half_step = 0.5 * ops.expand_dims(ops.exp(self._float("log_step")), 1)
        low_rank, inputs = self._pair("low_rank"), self._pair("input")
        # The inverse of 1 - Δ / 2 (Λ - p p*) follows from that of 1 - Δ / 2 Λ by the Woodbury identity.
        real, imaginary = 1.0 + half_step * ops.exp(self._float("log_decay")), -half_step * self._float("frequency")
        over = 1.0 / (real * real + imaginary * imaginary)
        inverse = _rotations(real * over, -imaginary * over)
        column = ops.matmul(inverse, ops.expand_dims(low_rank, 2))  # (D, S, 1)
        row = ops.matmul(ops.expand_dims(2.0 * low_rank, 1), inverse)  # (D, 1, S)
        scale = 1.0 + ops.expand_dims(half_step, 2) * ops.matmul(ops.expand_dims(2.0 * low_rank, 1), column)
        inverse = inverse - (ops.expand_dims(half_step, 2) / scale) * column * row
        written = ops.matmul(inverse, ops.expand_dims(2.0 * half_step * inputs, 2))[:, :, 0]
        return 2.0 * inverse - ops.eye(self.state_dim, dtype="float32"), written

    def _system(self, size):
        a, written = self._discrete()
        real, imaginary = self._outputs()
        output = 2.0 * ops.concatenate([real, -imaginary], axis=2)  # (D, M, S)
        squares = [a]  # A, A², A⁴, ...
        while 2 ** len(squares) <= size:
            squares.append(ops.matmul(squares[-1], squares[-1]))
        columns = ops.expand_dims(written, 2)  # A^t B: (D, S, 1), and twice as many with each square
        rows = ops.matmul(output, a)  # C A^(t + 1): (D, M, S)
        for square in squares:
            if columns.shape[2] < size:
                columns = ops.concatenate([columns, ops.matmul(square, columns)], axis=2)
                rows = ops.concatenate([rows, ops.matmul(rows, square)], axis=1)
        columns, rows = columns[:, :, :size], rows[:, : size * self.channels]
        if self.channels > 1:  # By channel and then by time.
            rows = ops.reshape(rows, (-1, size, self.channels, self.state_dim))
            rows = ops.reshape(ops.transpose(rows, (0, 2, 1, 3)), (-1, self.channels * size, self.state_dim))
        return ChunkedSystem(
            kernel=ops.matmul(output, columns),
            reads=ops.transpose(rows, (0, 2, 1)),
            writes=ops.transpose(columns[:, :, ::-1], (0, 2, 1)),
            transition=(_power(squares, size),),
            apply=_apply,
            square=lambda transition: (ops.matmul(transition[0], transition[0]),),
            advance=lambda states, counts: _advance(states, counts, squares),
        )


def _rotations(real, imaginary):
    """Returns diagonal complex matrices `(D, S / 2)` as real `(D, S, S)`, for vectors of real, then imaginary parts."""
    eye = ops.eye(real.shape[1], dtype="float32")
    real, imaginary = ops.expand_dims(real, 2) * eye, ops.expand_dims(imaginary, 2) * eye
    upper, lower = ops.concatenate([real, -imaginary], axis=2), ops.concatenate([imaginary, real], axis=2)
    return ops.concatenate([upper, lower], axis=1)


def _power(squares, exponent):
    """Returns a power of A from A, A², A⁴, ...; the exponent is less than twice the last exponent."""
    factors = [square for bit, square in enumerate(squares) if exponent >> bit & 1]
    product = factors[0]
    for factor in factors[1:]:
        product = ops.matmul(product, factor)
    return product


def _apply(transition, states):
    """Multiplies transitions `(D, S, S)` with states `(D, m, B, S)`."""
    width, _, _, size = shape = ops.shape(states[0])
    moved = ops.matmul(ops.reshape(states[0], (width, -1, size)), ops.transpose(transition[0], (0, 2, 1)))
    return (ops.reshape(moved, shape),)


def _advance(states, counts, squares):
    """Multiplies states `(D, B, S)` with the powers `counts` `(B,)` of A, by repeated squaring."""
    for bit, square in enumerate(squares):
        moved = ops.matmul(states, ops.transpose(square, (0, 2, 1)))
        is_set = ops.equal(counts // 2**bit % 2, 1)
        states = ops.where(ops.reshape(is_set, (1, -1, 1)), moved, states)
    return states


def hippo(state_dim: int) -> tuple[ArrayLike, ArrayLike, ArrayLike]:
    """Returns HiPPO-LegS in diagonal plus low-rank form: `Λ`, `p` and `b`, complex128 `(state_dim / 2,)`.

    `A_nk = -√((2n + 1)(2k + 1))` below the diagonal, `-(n + 1)` on it; `A + p pᵀ` with `p_n = √(n + 1/2)` is a
    skew-symmetric matrix minus half the identity. Its eigenvectors are orthogonal, and Λ has its eigenvalues.
    """
    n = np.arange(state_dim)
    inputs, low_rank = np.sqrt(2 * n + 1.0), np.sqrt(n + 0.5)
    a = -np.tril(np.outer(inputs, inputs), -1) - np.diag(n + 1.0)
    normal = a + np.outer(low_rank, low_rank)
    skew = (normal - normal.T) / 2
    frequencies, vectors = np.linalg.eigh(-1j * skew)
    order = np.argsort(frequencies)[state_dim // 2 :]  # The eigenvalue with positive frequency of each conjugate pair.
    vectors = vectors[:, order].conj().T
    return -0.5 + 1j * frequencies[order], vectors @ low_rank, vectors @ inputs
