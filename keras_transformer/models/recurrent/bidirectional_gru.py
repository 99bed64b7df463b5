"""Bidirectional GRU, the encoder of Bahdanau."""

from __future__ import annotations

import keras
from keras import ops

from keras_transformer.attention.arguments import positive
from keras_transformer.layers.projection import token_projection
from keras_transformer.recurrence.gru_step import gru_step, recurrent_kernels, stack_kernels
from keras_transformer.recurrence.sequential import sequential_scan
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, Initializer, Shape, Tensor


@serializable
class BidirectionalGRU(keras.layers.Layer):
    """Bidirectional GRU: `h_t = [h→_t; h←_t]`.

    `h_t = (1 - z) h_{t-1} + z tanh(W x_t + U (r h_{t-1}))`, with update gate `z = σ(W_z x_t + U_z h_{t-1})` and reset gate
    `r = σ(W_r x_t + U_r h_{t-1})`. Both directions run in one loop over the length, after one product with all tokens.

    Args:
        units: int >= 1. Width of each state n.
        kernel_initializer: initializer of each W.
        recurrent_initializer: initializer of each U.

    Call arguments:
        inputs: float `(B, T, D)`.
        padding_mask: boolean `(B, T)`, False for padding, which leaves the states unchanged; None for no padding.

    Returns:
        float `(B, T, 2n)`. At padding, the states of the last real token.

    Raises:
        ValueError: `units` below 1.

    Example:

    >>> import numpy as np
    >>> tuple(BidirectionalGRU(4)(np.ones((2, 5, 3))).shape)
    (2, 5, 8)

    Reference: Bahdanau et al., arXiv 1409.0473, appendices A.1.1 and A.2.1; each W has a bias, which the paper
    omits in its formulas.
    """

    def __init__(
        self,
        units: int,
        kernel_initializer: Initializer = "glorot_uniform",
        recurrent_initializer: Initializer = "orthogonal",
        **kwargs: object,
    ) -> None:
        super().__init__(**kwargs)
        self.units = positive("units", units)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.recurrent_initializer = keras.initializers.get(recurrent_initializer)

    def build(self, inputs_shape: Shape) -> None:
        self.input_dense = token_projection(self, "input", 6 * self.units)
        self.input_dense.build(inputs_shape)
        self.forward_kernels = recurrent_kernels(self, "forward")
        self.backward_kernels = recurrent_kernels(self, "backward")

    def call(self, inputs: Tensor, padding_mask: Tensor | None = None, training: bool | None = None) -> Tensor:
        length, units = ops.shape(inputs)[1], self.units
        x = ops.reshape(self.input_dense(inputs), (-1, length, 2, 3 * units))
        x = _reverse_backward(ops.transpose(x, (1, 2, 0, 3)))  # (T, 2, B, 3n), the backward direction reversed
        steps: tuple[Tensor, ...] = (x[..., :units], x[..., units:])
        if padding_mask is not None:
            mask = ops.expand_dims(ops.cast(ops.transpose(padding_mask), "float32"), 1)
            steps += (ops.expand_dims(_reverse_backward(ops.concatenate([mask, mask], axis=1)), 3),)
        directions = zip(stack_kernels(self.forward_kernels), stack_kernels(self.backward_kernels), strict=True)
        kernels = [ops.concatenate([ops.expand_dims(each, 0) for each in pair], axis=0) for pair in directions]

        def step(index, carry, candidate, gates, *mask):
            state = gru_step(carry[0], candidate, gates, kernels, *mask)
            return (state,), ops.cast(state, candidate.dtype)

        state = ops.zeros((2, ops.shape(inputs)[0], units), "float32")
        outputs = ops.transpose(_reverse_backward(sequential_scan(step, (state,), steps, training)[1]), (2, 0, 1, 3))
        return ops.reshape(outputs, (-1, length, 2 * units))

    def compute_output_shape(self, inputs_shape: Shape, padding_mask_shape: Shape | None = None) -> Shape:
        return (*inputs_shape[:2], 2 * self.units)

    def get_config(self) -> Config:
        return {**super().get_config(), **width_config(self, "units")}


def width_config(layer: keras.layers.Layer, *names: str) -> Config:
    """The part of a layer's config with its widths and its two initializers."""
    initializers = {
        name: keras.initializers.serialize(getattr(layer, name))
        for name in ("kernel_initializer", "recurrent_initializer")
    }
    return {**{name: getattr(layer, name) for name in names}, **initializers}


def _reverse_backward(x):
    """Reverses the second of two directions `(T, 2, ...)` along the time axis."""
    return ops.concatenate([x[:, :1], ops.flip(x[:, 1:], axis=0)], axis=1)
