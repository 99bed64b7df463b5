"""Activations by name, including two that Keras does not name."""

from __future__ import annotations

from collections.abc import Callable

import keras
from keras import ops

from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Activation, Tensor


@serializable
def gelu_tanh(x: Tensor) -> Tensor:
    """GELU with the tanh approximation: `0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³)))`.

    Args:
        x: float tensor.

    Returns:
        A tensor of the same shape.

    Example:

    >>> import numpy as np
    >>> np.array(gelu_tanh(np.array([0.0, 1.0], "float32"))).round(3).tolist()
    [0.0, 0.8410000205039978]

    Reference: Hendrycks and Gimpel, arXiv 1606.08415, section 2.
    """
    return ops.gelu(x, approximate=True)


@serializable
def quick_gelu(x: Tensor) -> Tensor:
    """GELU with the sigmoid approximation: `x σ(1.702 x)`.

    Args:
        x: float tensor.

    Returns:
        A tensor of the same shape.

    Example:

    >>> import numpy as np
    >>> np.array(quick_gelu(np.array([0.0, 1.0], "float32"))).round(3).tolist()
    [0.0, 0.8460000157356262]

    Reference: Hendrycks and Gimpel, arXiv 1606.08415, section 2.
    """
    return x * ops.sigmoid(1.702 * x)


ACTIVATIONS: dict[str, Callable[..., Tensor]] = {
    "relu": keras.activations.relu,
    "gelu": keras.activations.gelu,
    "gelu_tanh": gelu_tanh,
    "quick_gelu": quick_gelu,
    "silu": keras.activations.silu,
}


def get_activation(identifier: Activation) -> Callable[..., Tensor]:
    """Returns the activation for a name in `ACTIVATIONS`, or for anything that `keras.activations.get` accepts."""
    if isinstance(identifier, str) and identifier in ACTIVATIONS:
        return ACTIVATIONS[identifier]
    return keras.activations.get(identifier)
