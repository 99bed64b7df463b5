"""Activations that Keras does not name, and the forms of activations for training."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import keras
from keras import ops

from keras_transformer.layers import activation_gradients
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Tensor


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


_IN_TRAINING: dict[Callable[..., Tensor], Callable[[Tensor], Tensor]] = {
    keras.activations.gelu: activation_gradients.gelu,
    gelu_tanh: activation_gradients.gelu_tanh,
    keras.activations.silu: activation_gradients.silu,
}


def in_training(activation: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Returns the activation to compute in training, of the same values: with a gradient of its own if it has one here.

    Graphs for inference keep the activation itself, which converters know.

    Example:

    >>> in_training(keras.activations.gelu) is activation_gradients.gelu
    True
    >>> in_training(keras.activations.relu) is keras.activations.relu
    True
    """
    return _IN_TRAINING.get(activation, activation) if isinstance(activation, Hashable) else activation
