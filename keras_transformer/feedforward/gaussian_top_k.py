"""Gaussian top-k: sparse activations of a gate, whose cut-off is that of a normal distribution."""

from __future__ import annotations

import statistics

import keras
from keras import ops

from keras_transformer.feedforward.activations import Gating, get_activation
from keras_transformer.utils.serialization import Configured, serializable
from keras_transformer.utils.types import Activation, Config, Tensor


@serializable
class GaussianTopK(Gating, Configured):
    """Gaussian top-k: `activation(relu(g - μ - z σ)) h` for gate g and hidden layer h.

    μ and σ are the mean and the standard deviation of the gate of a token, and z is the quantile `sparsity` of the normal
    distribution: about this share of the gate becomes 0. It is the `activation` of a `GatedFeedForward`.

    Args:
        sparsity: float in (0, 1).
        activation: name in `ACTIVATIONS`, or any activation of Keras. Defaults to "gelu_tanh".

    Call arguments:
        gate: float tensor `(..., F)`.
        hidden: float tensor of the same shape.

    Returns:
        A tensor of the same shape.

    Raises:
        ValueError: `sparsity` out of range.

    Example:

    >>> import numpy as np
    >>> gate = np.array([[0.0, 1.0, 2.0, 3.0]], "float32")
    >>> np.array(GaussianTopK(0.5, "relu")(gate, np.ones_like(gate))).tolist()
    [[0.0, 0.0, 0.5, 1.5]]

    Reference: You et al., Spark Transformer, arXiv 2506.06644, section 3.1 (statistical top-k), as in the code of Gemma 3n.
    """

    def __init__(self, sparsity: float, activation: Activation = "gelu_tanh") -> None:
        if not 0 < sparsity < 1:
            raise ValueError(f"sparsity must be between 0 and 1. Received: {sparsity}")
        self.sparsity = float(sparsity)
        self.activation = get_activation(activation)
        self._deviations = statistics.NormalDist().inv_cdf(self.sparsity)

    def __call__(self, gate: Tensor, hidden: Tensor) -> Tensor:
        mean = ops.mean(gate, axis=-1, keepdims=True)
        deviation = ops.sqrt(ops.mean(ops.square(gate - mean), axis=-1, keepdims=True))
        return self.activation(ops.relu(gate - (mean + deviation * self._deviations))) * hidden

    def get_config(self) -> Config:
        return {"sparsity": self.sparsity, "activation": keras.activations.serialize(self.activation)}
