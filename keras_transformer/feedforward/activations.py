"""Activations by name, and the base class of those that take a gate."""

from __future__ import annotations

from collections.abc import Callable

import keras

from keras_transformer.layers.activations import gelu_tanh as gelu_tanh
from keras_transformer.layers.activations import quick_gelu as quick_gelu
from keras_transformer.utils.types import Activation, Tensor

ACTIVATIONS: dict[str, Callable[..., Tensor]] = {
    "relu": keras.activations.relu,
    "gelu": keras.activations.gelu,
    "gelu_tanh": gelu_tanh,
    "quick_gelu": quick_gelu,
    "silu": keras.activations.silu,
}


class Gating:
    """Base class of the activations of gated layers that are functions of both the gate and the hidden layer.

    Other activations are functions of the gate, which then multiplies the hidden layer.

    Example:

    >>> class Bilinear(Gating):
    ...     def __call__(self, gate, hidden):
    ...         return gate * hidden
    >>> Bilinear()(2.0, 3.0)
    6.0
    """

    def __call__(self, gate: Tensor, hidden: Tensor) -> Tensor:
        raise NotImplementedError


def get_activation(identifier: Activation, gated: bool = False) -> Callable[..., Tensor]:
    """Returns the activation for a name in `ACTIVATIONS`, or for anything that `keras.activations.get` accepts.

    Args:
        identifier: str, callable, config or None.
        gated: bool. Whether a `Gating` is possible.

    Raises:
        ValueError: an unknown name; a `Gating` for a layer without a gate.
    """
    if isinstance(identifier, str) and identifier in ACTIVATIONS:
        return ACTIVATIONS[identifier]
    found = keras.activations.get(identifier)
    if isinstance(found, Gating) and not gated:
        raise ValueError(f"{type(found).__name__} is the activation of a gated layer. This layer has no gate.")
    return found
