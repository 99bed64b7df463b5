"""Calls of equal layers that TensorFlow traces once, as one function that all of them call with their own weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras

from keras_transformer.backend import keras_private
from keras_transformer.backend.split_gradient import SplitGradient
from keras_transformer.backend.variable_values import VariableValues
from keras_transformer.backend.xla import is_traced_for_xla
from keras_transformer.utils.types import Tensor


def can_share_traces() -> bool:
    """Returns whether `SharedTrace` is of use for what is traced now: on TensorFlow, not for XLA, on one device, a CPU."""
    if keras.backend.backend() != "tensorflow" or is_traced_for_xla():
        return False
    import tensorflow as tf

    is_single = tf.distribute.get_strategy().num_replicas_in_sync == 1
    return tf.inside_function() and is_single and not tf.config.list_logical_devices("GPU")


class SharedTrace:
    """A call of a layer as a TensorFlow function of its weights, which equal layers call with theirs.

    A graph of many equal blocks has each operation once, not once for each block: it is traced, optimized and kept in memory
    once, forward and backward. Seeds, statistics and losses that a layer adds are results of the function.

    Args:
        layer: built `keras.layers.Layer`, whose call is traced.
        function: function of tensors to a structure of tensors, which calls the layer and nothing else that has variables.
        tensors: the tensors of the first call.
        inlined: bool. As of `SplitGradient`. Default False.

    Attributes:
        is_shared: bool. Whether other layers can call it: not if the call reads a tensor or a variable that is neither an
            argument nor a variable of the layer.
    """

    _structure: Any  # Of the results.
    _num_losses: int

    def __init__(
        self, layer: keras.layers.Layer, function: Callable[..., Any], tensors: Sequence[Tensor], inlined: bool = False
    ) -> None:
        import tensorflow as tf

        values = VariableValues([layer])
        self._changed: list[int] = []

        def flat(*arguments: Tensor) -> list[Tensor]:
            inputs, states = arguments[: len(tensors)], arguments[len(tensors) + len(values.weights) :]
            weights = arguments[len(tensors) : len(arguments) - len(states)]
            with (
                values.scope(weights, states, collect_losses=True) as scope,
                keras_private.autocast_scope(layer.compute_dtype),
            ):
                before = [scope.get_current_value(variable) for variable in values.others]
                results = function(*inputs)
                following = [scope.get_current_value(variable) for variable in values.others]
            self._changed = [index for index, new in enumerate(following) if new is not before[index]]
            self._structure, self._num_losses = results, len(scope.losses)
            return [*keras.tree.flatten(results), *scope.losses, *(following[index] for index in self._changed)]

        arguments = [*tensors, *values.weights, *values.states]
        trained = [
            index for index, x in enumerate(arguments[: len(arguments) - len(values.states)]) if x.dtype.is_floating
        ]
        specs = [tf.TensorSpec(x.shape, x.dtype) for x in arguments]
        self._function = SplitGradient(flat, specs, trained, type(layer).__name__, inlined)
        self.is_shared = not self._function.has_captures

    def __call__(self, layer: keras.layers.Layer, tensors: Sequence[Tensor]) -> Any:
        """Returns what the call of `layer`, an equal one, returns for tensors of the same shapes and dtypes."""
        values = VariableValues([layer])
        outputs = self._function(*tensors, *values.weights, *values.states)
        end = len(outputs) - len(self._changed)
        results, losses, states = (
            outputs[: end - self._num_losses],
            outputs[end - self._num_losses : end],
            outputs[end:],
        )
        for loss in losses:
            layer.add_loss(loss)
        for index, state in zip(self._changed, states, strict=True):
            values.others[index].assign(state)
        return keras.tree.pack_sequence_as(self._structure, results)
