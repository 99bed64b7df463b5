"""A layer as a function of its weights, for hand-written gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

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

    def call(
        self,
        layer: keras.layers.Layer,
        function: Callable[..., object],
        inputs: Iterable[Tensor],
        weights: Iterable[Tensor],
        states: Iterable[Tensor] | None = None,
    ) -> tuple[Any, list[Tensor], dict[int, Tensor]]:
        """Returns `function(*inputs)` with the values `weights` and `states`, and what it does beside.

        Args:
            layer: `keras.layers.Layer` in whose compute dtype the function runs.
            function: function of tensors that calls parts of the layers.
            inputs: tensors.
            weights, states: as of `scope`.

        Returns:
            The results, the losses that the layers add, and the new values of those of `others` that change, by index.
        """
        scope = self.scope(weights, states, collect_losses=True)
        with scope, keras_private.autocast_scope(layer.compute_dtype):
            before = [scope.get_current_value(variable) for variable in self.others]
            results = function(*inputs)
            following = [scope.get_current_value(variable) for variable in self.others]
        pairs = enumerate(zip(before, following, strict=True))
        return results, list(scope.losses), {index: new for index, (old, new) in pairs if new is not old}

    def commit(self, layer: keras.layers.Layer, losses: Iterable[Tensor], changed: Mapping[int, Tensor]) -> None:
        """Adds the losses of a `call` to a layer, and assigns the values that it changed."""
        for loss in losses:
            layer.add_loss(loss)
        for index, state in changed.items():
            self.others[index].assign(state)


def value_of(variable: keras.Variable) -> Tensor:
    """Returns the current value as a tensor; on TensorFlow `variable.value` is the variable itself, which may change.

    A function with a hand-written gradient takes tensors: TensorFlow refuses one that reads variables.

    Example:

    >>> float(value_of(keras.Variable(2.0)))
    2.0
    """
    return ops.copy(variable.value) if keras.backend.backend() == "tensorflow" else variable.value
