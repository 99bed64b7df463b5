"""S4D: state spaces whose transition is diagonal."""

from __future__ import annotations

from typing import Unpack

import numpy as np
from keras import ops

from keras_transformer.recurrence.state_spaces.s4_layer import S4Layer
from keras_transformer.recurrence.state_spaces.state_space import ChunkedSystem
from keras_transformer.utils.serialization import choice, serializable
from keras_transformer.utils.types import Activation, Config, Initializer, LayerOptions


@serializable
class S4D(S4Layer):
    """`GLU(activation(y + d u))`, where y is the response of a diagonal linear system, one for each channel, to u.

    `h_t = e^(Δ a) h_{t - 1} + (e^(Δ a) - 1) / a · u_t` (zero-order hold) or
    `h_t = (1 + Δ a / 2) / (1 - Δ a / 2) h_{t - 1} + Δ / (1 - Δ a / 2) · u_t` (bilinear), and `y_t = 2 Re(c · h_t)`, with
    `state_dim / 2` complex numbers in a, c and h: of conjugate pairs one is held. Convolution (a chunk as long as the
    sequence), chunked and step form are one computation, in float32 under every dtype policy, without complex numbers. With
    states of S, time grows with `T · (C + S) · D`, memory with `T · D · (1 + S / C · log(T / C))`.

    Args:
        state_dim: even int >= 2. Width of the state of each channel. Defaults to 64.
        min_step, max_step: floats, 0 < min_step <= max_step. Range of the initial steps Δ. Defaults to 0.001 and 0.1.
        chunk_size: int >= 1. C. Defaults to 64. It changes only the cost.
        activation: defaults to "gelu".
        kernel_initializer: initializer of the output projections.
        seed: int or None. Seed of the initial steps and outputs.
        channels: int >= 1. M: responses of each system, with M vectors c and skip weights d, which share a state. The output
            projections take all `M · D`. Defaults to 1.
        discretization: "zoh" (zero-order hold) or "bilinear". Defaults to "zoh".

    Call arguments: see `Recurrence`; `positions` are not read.

    Returns:
        `(B, T, D)`; with a cache, `(output, next_cache)`. The cache is "state" `(B, D, state_dim)`, real parts and then
        imaginary ones; float32.

    Raises:
        ValueError: odd `state_dim`; an unknown `discretization`; steps that are not positive; a call that is not causal;
            scores, an `attention_mask`, or cross-attention.

    Padding is an input of zeros. Padding on the right of new tokens does not change the state. Export: all three formats,
    with and without a cache.

    Example:

    >>> import numpy as np
    >>> layer = S4D(state_dim=8)
    >>> tuple(layer(np.ones((1, 3, 4), "float32")).shape)
    (1, 3, 4)

    Reference: Gu et al., On the Parameterization and Initialization of Diagonal State Space Models, arXiv 2206.11893,
    S4D-Lin, section 3.2 for the discretizations; the layer is that of the authors' s4d.py. Deviation: chunks in place of a
    Fourier transform.
    """

    def __init__(
        self,
        state_dim: int = 64,
        min_step: float = 0.001,
        max_step: float = 0.1,
        chunk_size: int = 64,
        activation: Activation = "gelu",
        kernel_initializer: Initializer = "glorot_uniform",
        seed: int | None = None,
        channels: int = 1,
        discretization: str = "zoh",
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(
            state_dim, min_step, max_step, chunk_size, activation, kernel_initializer, seed, channels, **kwargs
        )
        self._discretize = choice(discretization, _DISCRETIZATIONS, argument="discretization")
        self.discretization = discretization

    def _build_system(self, width):
        self._add_steps(width)
        half = self.state_dim // 2
        self._add("log_decay", (width, half), np.log(0.5) * np.ones((width, half)))
        self._add("frequency", (width, half), np.pi * np.arange(half) * np.ones((width, 1)))
        self._add_outputs(width, half)

    def _system(self, size):
        step = ops.expand_dims(ops.exp(self._float("log_step")), 1)
        real, imaginary = -ops.exp(self._float("log_decay")), self._float("frequency")
        rate, angle, b = self._discretize(step, real, imaginary)  # Log A and B: (D, S / 2)
        c = tuple(2.0 * part for part in self._outputs())
        rate, angle = ops.expand_dims(rate, 2), ops.expand_dims(angle, 2)
        powers = _power(rate, angle, np.arange(size + 1, dtype="float32"))  # Pairs of (D, S / 2, C + 1)
        written = tuple(part[:, :, :size] for part in _times(powers, tuple(ops.expand_dims(part, 2) for part in b)))
        kernel = ops.matmul(c[0], written[0]) - ops.matmul(c[1], written[1])  # (D, M, C)
        following = tuple(ops.expand_dims(part[:, :, 1:], 1) for part in powers)
        read = _times(following, tuple(ops.expand_dims(part, 3) for part in c))  # (D, M, S / 2, C)
        reads = ops.transpose(ops.concatenate([read[0], -read[1]], axis=2), (0, 2, 1, 3))
        writes = ops.concatenate([part[:, :, ::-1] for part in written], axis=1)
        return ChunkedSystem(
            kernel=kernel,
            reads=ops.reshape(reads, (-1, self.state_dim, self.channels * size)),
            writes=ops.transpose(writes, (0, 2, 1)),
            transition=tuple(part[:, :, size] for part in powers),
            apply=_apply,
            square=lambda transition: _times(transition, transition),
            advance=lambda states, counts: _advance(states, counts, powers),
        )

    def get_config(self) -> Config:
        return {**super().get_config(), "discretization": self.discretization}


def _zero_order_hold(step, real, imaginary):
    """Returns the real and imaginary parts of log A, and B = (A - 1) / a as a pair."""
    rate, angle = step * real, step * imaginary
    over = 1.0 / (real * real + imaginary * imaginary)
    a = _power(rate, angle, 1.0)
    return rate, angle, _times((a[0] - 1.0, a[1]), (real * over, -imaginary * over))


def _bilinear(step, real, imaginary):
    """Returns log A and B as `_zero_order_hold` does: A = (1 + z) / (1 - z), B = Δ / (1 - z), with z = Δ a / 2."""
    z = 0.5 * step * real, 0.5 * step * imaginary
    over = 1.0 / (ops.square(1.0 - z[0]) + ops.square(z[1]))
    # |A|² - 1, above -1 so that its logarithm is finite.
    change = ops.maximum(4.0 * z[0] * over, _LEAST - 1.0)
    angle = ops.arctan2(z[1], 1.0 + z[0]) + ops.arctan2(z[1], 1.0 - z[0])
    return 0.5 * ops.log1p(change), angle, (step * (1.0 - z[0]) * over, step * z[1] * over)


_LEAST = 1e-6
_DISCRETIZATIONS = {"zoh": _zero_order_hold, "bilinear": _bilinear}


def _power(rate, angle, exponent):
    """Returns `e^(exponent (rate + i angle))` as a pair of real tensors."""
    size = ops.exp(rate * exponent)
    return size * ops.cos(angle * exponent), size * ops.sin(angle * exponent)


def _times(a, b):
    """Returns the product of complex numbers, each a pair of real tensors."""
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


def _apply(transition, states):
    """Multiplies diagonal transitions, pairs of `(D, S / 2)`, with states `(D, m, B, S)`."""
    half = transition[0].shape[1]
    transition = tuple(ops.expand_dims(part, (1, 2)) for part in transition)
    product = _times(transition, (states[0][..., :half], states[0][..., half:]))
    return (ops.concatenate(product, axis=-1),)


def _advance(states, counts, powers):
    """Multiplies states `(D, B, S)` with the powers `counts` `(B,)` of the transition."""
    half, size = powers[0].shape[1:]
    picked = ops.one_hot(counts, size, dtype="float32")  # (B, C + 1)
    factor = tuple(ops.matmul(ops.expand_dims(picked, 0), ops.transpose(part, (0, 2, 1))) for part in powers)
    return ops.concatenate(_times(factor, (states[..., :half], states[..., half:])), axis=-1)
