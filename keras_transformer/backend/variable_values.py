"""A layer as a function of its weights: what gradients that are written by hand go through."""

import keras
from keras import ops

from keras_transformer.backend import keras_private


class VariableValues:
    """What the variables of layers hold now.

    Args:
        layers: iterable of `keras.layers.Layer`.

    Attributes:
        weights: list of tensors: of the trainable variables, as they are stored. They get gradients.
        others: list of the other variables, such as states of generators. They get none.
    """

    def __init__(self, layers):
        self._trainable = [variable for layer in layers for variable in layer.trainable_variables]
        chosen = {id(variable) for variable in self._trainable}
        self.others = [variable for layer in layers for variable in layer.variables if id(variable) not in chosen]
        with keras_private.autocast_scope(None):  # As they are stored: each part of a layer casts them for itself.
            self.weights = [_value(variable) for variable in self._trainable]
            self._states = [_value(variable) for variable in self.others]

    def scope(self, weights, collect_losses=False):
        """A `keras.StatelessScope` in which the trainable ones have the values `weights`, and nothing is written back."""
        with keras_private.autocast_scope(None):
            mapping = zip([*self._trainable, *self.others], [*weights, *self._states], strict=True)
            return keras.StatelessScope(list(mapping), collect_losses=collect_losses)


def _value(variable):
    """The value of a variable now; on TensorFlow `value` is the variable itself, whose value changes."""
    return ops.copy(variable.value) if keras.backend.backend() == "tensorflow" else variable.value
