"""A layer as a function of its weights, for hand-written gradients."""

from __future__ import annotations

from collections.abc import Iterable

import keras
from keras import ops

from keras_transformer.backend import keras_private
from keras_transformer.utils.types import Tensor


class VariableValues:
    """The current values of the variables of layers.

    Args:
        layers: iterable of `keras.layers.Layer`.

    Attributes:
        weights: list of tensors: values of the trainable variables, in their own dtypes. They get gradients.
        others: list of the other variables, such as seeds. They get no gradients.
        states: list of tensors: the values of `others`.
    """

    def __init__(self, layers: Iterable[keras.layers.Layer]) -> None:
        layers = list(layers)
        self._trainable = [variable for layer in layers for variable in layer.trainable_variables]
        chosen = {id(variable) for variable in self._trainable}
        self.others = [variable for layer in layers for variable in layer.variables if id(variable) not in chosen]
        with keras_private.autocast_scope(None):  # In their own dtypes: each part of a layer casts them itself.
            self.weights = [value_of(variable) for variable in self._trainable]
            self.states = [value_of(variable) for variable in self.others]

    def scope(
        self, weights: Iterable[Tensor], states: Iterable[Tensor] | None = None, collect_losses: bool = False
    ) -> keras.StatelessScope:
        """Returns a `keras.StatelessScope` in which the variables have the values `weights` and `states`, or their own."""
        states = self.states if states is None else states
        with keras_private.autocast_scope(None):
            mapping = zip([*self._trainable, *self.others], [*weights, *states], strict=True)
            return keras.StatelessScope(list(mapping), collect_losses=collect_losses)


def value_of(variable: keras.Variable) -> Tensor:
    """Returns the current value as a tensor; on TensorFlow `variable.value` is the variable itself, which may change.

    A function with a hand-written gradient takes tensors: TensorFlow refuses one that reads variables.

    Example:

    >>> float(value_of(keras.Variable(2.0)))
    2.0
    """
    return ops.copy(variable.value) if keras.backend.backend() == "tensorflow" else variable.value
