"""Activations that Keras has no name for."""

import keras
from keras import ops

from keras_transformer.saving import serializable


@serializable
def gelu_tanh(x):
    """GELU by its tanh approximation: `0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³)))`.

    Reference: Hendrycks and Gimpel, arXiv 1606.08415, section 2.
    """
    return ops.gelu(x, approximate=True)


ACTIVATIONS = {
    "relu": keras.activations.relu,
    "gelu": keras.activations.gelu,
    "gelu_tanh": gelu_tanh,
    "silu": keras.activations.silu,
}


def get_activation(identifier):
    """A name in `ACTIVATIONS`, or anything `keras.activations.get` takes."""
    if isinstance(identifier, str) and identifier in ACTIVATIONS:
        return ACTIVATIONS[identifier]
    return keras.activations.get(identifier)
