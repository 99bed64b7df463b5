"""Activations that Keras has no name for."""

from __future__ import annotations

from collections.abc import Callable

import keras
from keras import ops

from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Activation, Tensor


@serializable
def gelu_tanh(x: Tensor) -> Tensor:
    """GELU by its tanh approximation: `0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³)))`.

    Reference: Hendrycks and Gimpel, arXiv 1606.08415, section 2.
    """
    return ops.gelu(x, approximate=True)


@serializable
def quick_gelu(x: Tensor) -> Tensor:
    """GELU by a logistic function: `x σ(1.702 x)`.

    Reference: Hendrycks and Gimpel, arXiv 1606.08415, section 2.
    """
    return x * ops.sigmoid(1.702 * x)


ACTIVATIONS = {
    "relu": keras.activations.relu,
    "gelu": keras.activations.gelu,
    "gelu_tanh": gelu_tanh,
    "quick_gelu": quick_gelu,
    "silu": keras.activations.silu,
}


def get_activation(identifier: Activation) -> Callable[..., Tensor]:
    """A name in `ACTIVATIONS`, or anything `keras.activations.get` takes."""
    if isinstance(identifier, str) and identifier in ACTIVATIONS:
        return ACTIVATIONS[identifier]
    return keras.activations.get(identifier)
