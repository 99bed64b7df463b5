"""Calls of equal layers that TensorFlow traces once, as one function that all of them call with their own weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras

from keras_transformer.backend.compilation.xla import is_traced_for_xla
from keras_transformer.backend.gradients.split_gradient import SplitGradient
from keras_transformer.backend.variable_values import VariableValues
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

    _structure: object  # Of the results.
    _num_losses: int
    _changed: list[int]  # Indices of the states that change.

    def __init__(
        self,
        layer: keras.layers.Layer,
        function: Callable[..., object],
        tensors: Sequence[Tensor],
        inlined: bool = False,
    ) -> None:
        import tensorflow as tf

        values = VariableValues([layer])
        arguments = [*tensors, *values.weights, *values.states]
        first, second = len(tensors), len(tensors) + len(values.weights)

        def flat(*arguments: Tensor) -> list[Tensor]:
            inputs, weights, states = arguments[:first], arguments[first:second], arguments[second:]
            results, losses, changed = values.call(layer, function, inputs, weights, states)
            self._structure, self._num_losses, self._changed = results, len(losses), list(changed)
            return [*keras.tree.flatten(results), *losses, *changed.values()]

        trained = [index for index, x in enumerate(arguments[:second]) if x.dtype.is_floating]
        specs = [tf.TensorSpec(x.shape, x.dtype) for x in arguments]
        self._function = SplitGradient(flat, specs, trained, type(layer).__name__, inlined)
        self.is_shared = not self._function.has_captures

    def __call__(self, layer: keras.layers.Layer, tensors: Sequence[Tensor]) -> Any:
        """Returns what the call of `layer`, an equal one, returns for tensors of the same shapes and dtypes."""
        values = VariableValues([layer])
        outputs = self._function(*tensors, *values.weights, *values.states)
        end = len(outputs) - len(self._changed)
        start = end - self._num_losses
        values.commit(layer, outputs[start:end], dict(zip(self._changed, outputs[end:], strict=True)))
        return keras.tree.pack_sequence_as(self._structure, outputs[:start])
