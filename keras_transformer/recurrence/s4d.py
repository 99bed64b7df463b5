"""S4D: state spaces whose transition is diagonal."""

import numpy as np
from keras import ops

from keras_transformer.recurrence.s4_layer import S4Layer
from keras_transformer.recurrence.state_space import ChunkedSystem
from keras_transformer.utils.serialization import serializable


@serializable
class S4D(S4Layer):
    """`GLU(activation(y + d u))`, where y is the response of a diagonal linear system, one for each channel, to u.

    `h_t = e^(Δ a) h_{t - 1} + (e^(Δ a) - 1) / a · u_t` and `y_t = 2 Re(c · h_t)`, with `state_dim / 2` complex numbers in a,
    c and h: of conjugate pairs one is held. Convolution (a chunk as long as the sequence), chunked and step form are one
    computation, in float32 under every dtype policy, without complex numbers. With states of S, time grows with
    `T · (C + S) · D`, memory with `T · D · (1 + S / C · log(T / C))`.

    Args:
        state_dim: even int >= 2. Width of the state of each channel. Defaults to 64.
        min_step, max_step: floats, 0 < min_step <= max_step. Range of the initial steps Δ. Defaults to 0.001 and 0.1.
        chunk_size: int >= 1. C. Defaults to 64. It changes only the cost.
        activation: defaults to "gelu".
        kernel_initializer: initializer of the output projections.
        seed: int or None. Seed of the initial steps and outputs.

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
    >>> layer = S4D(state_dim=8)
    >>> tuple(layer(np.ones((1, 3, 4), "float32")).shape)
    (1, 3, 4)

    Reference: Gu et al., On the Parameterization and Initialization of Diagonal State Space Models, arXiv 2206.11893,
    S4D-Lin with zero-order hold; the layer is that of the authors' s4d.py. Deviation: chunks in place of a Fourier
    transform.
    """

    def _build_system(self, width):
        self._add_steps(width)
        half = self.state_dim // 2
        self._add("log_decay", (width, half), np.log(0.5) * np.ones((width, half)))
        self._add("frequency", (width, half), np.pi * np.arange(half) * np.ones((width, 1)))
        self._add_outputs(width, half)

    def _system(self, size):
        step = ops.expand_dims(ops.exp(self._float("log_step")), 1)
        real, imaginary = -ops.exp(self._float("log_decay")), self._float("frequency")
        rate, angle = step * real, step * imaginary  # Real and imaginary part of log A: (D, S / 2)
        over = 1.0 / (real * real + imaginary * imaginary)
        # B = (A - 1) / a, and the output 2 c B.
        a = _power(rate, angle, 1.0)
        numerator = (a[0] - 1.0, a[1])
        b = (
            (numerator[0] * real + numerator[1] * imaginary) * over,
            (numerator[1] * real - numerator[0] * imaginary) * over,
        )
        c = (2.0 * self._float("output_real"), 2.0 * self._float("output_imaginary"))
        rate, angle = ops.expand_dims(rate, 2), ops.expand_dims(angle, 2)
        powers = _power(rate, angle, np.arange(size + 1, dtype="float32"))  # Pairs of (D, S / 2, C + 1)
        written = _times(powers, tuple(ops.expand_dims(part, 2) for part in b))
        column = tuple(ops.expand_dims(part, 2) for part in c)
        kernel = ops.sum(_times(written, column)[0][:, :, :size], axis=1)
        read = _times(powers, column)
        writes = ops.concatenate([part[:, :, :size][:, :, ::-1] for part in written], axis=1)
        return ChunkedSystem(
            kernel=kernel,
            reads=ops.concatenate([read[0][:, :, 1:], -read[1][:, :, 1:]], axis=1),
            writes=ops.transpose(writes, (0, 2, 1)),
            transition=tuple(part[:, :, size] for part in powers),
            apply=_apply,
            square=lambda transition: _times(transition, transition),
            advance=lambda states, counts: _advance(states, counts, powers),
        )


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
