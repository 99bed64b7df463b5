"""Gated feed-forward: GLU, ReGLU, GEGLU or SwiGLU, depending on the activation."""

from __future__ import annotations

from typing import Any

from keras_transformer.feedforward.activations import Gating
from keras_transformer.feedforward.dense import DenseFeedForward
from keras_transformer.layers.activations import in_training
from keras_transformer.layers.split_projections import SharedInputs
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Activation, Shape


@serializable
class GatedFeedForward(DenseFeedForward):
    """Gated feed-forward: `(activation(x W_gate) * x W_hidden) W_output`. With SiLU it is SwiGLU.

    Args:
        intermediate_dim: int >= 1. Width of gate and hidden layer.
        activation: activation of the gate: "silu" (SwiGLU), "gelu" (GEGLU), "relu" (ReGLU), "sigmoid" (GLU), or any of
            Keras; or a `Gating`, such as `ClampedSwiGLU()`.
        dropout: float in [0, 1). Dropout rate of the gated hidden layer.
        use_bias: bool. Defaults to False, as in the paper.
        kernel_initializer: initializer of the three kernels.
        seed: int or None. Seed of the dropout.
        hidden_norm: None, "layer_norm", "rms_norm", or a norm layer to copy: of the gated hidden layer, after its dropout.
        use_output_bias: bool, or None for `use_bias`. Whether the output has a bias.

    Call arguments:
        inputs: float `(B, T, D)`.

    Returns:
        `(B, T, D)`.

    Raises:
        ValueError: `intermediate_dim` below 1.

    Example:

    >>> import numpy as np
    >>> layer = GatedFeedForward(3, activation="relu", kernel_initializer="ones")
    >>> layer(np.array([[[1.0, 2.0]]])).numpy().tolist()
    [[[27.0, 27.0]]]

    Reference: Shazeer, GLU Variants Improve Transformer, arXiv 2002.05202, equation 6.
    """

    _is_gated = True

    def __init__(
        self,
        intermediate_dim: int,
        activation: Activation = "silu",
        dropout: float = 0.0,
        use_bias: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(intermediate_dim, activation=activation, dropout=dropout, use_bias=use_bias, **kwargs)

    def build(self, input_shape: Shape) -> None:
        joint = isinstance(self.activation, Gating)
        self._gate_dense = self._dense("gate", self.intermediate_dim, None if joint else self.activation)
        self._gate_dense.build(input_shape)
        self._hidden_dense = self._dense("hidden", self.intermediate_dim)
        self._hidden_dense.build(input_shape)
        self._build_output(input_shape)

    def _hidden(self, inputs):
        project = SharedInputs()
        gate, hidden = project(self._gate_dense, inputs), project(self._hidden_dense, inputs)
        return self.activation(gate, hidden) if isinstance(self.activation, Gating) else gate * hidden

    def _linear(self, inputs):
        # Not by `SharedInputs`: no kernel is split over devices where this is called.
        return self._gate_dense(inputs, activate=False), self._hidden_dense(inputs)

    def _activate(self, gate, hidden):
        if isinstance(self.activation, Gating):
            return self.activation(gate, hidden)
        return in_training(self.activation)(gate) * hidden
