"""What a mixture of experts tells the training logs."""

from __future__ import annotations

import keras
from keras import ops

from keras_transformer.utils.types import Tensor


class ExpertCounts(keras.metrics.Metric):
    """How many assignments each expert got, and how many were dropped, since the epoch began.

    What is counted stands in weights of the layer: Keras carries these through a step of training on every backend, and on
    JAX no metric that a layer updates in its call.

    Args:
        loads: int32 variable `(E,)`.
        dropped: int32 variable `()`.
        name: str. What the entries begin with: "NAME/load_0", "NAME/load_1", ..., "NAME/dropped".
    """

    def __init__(self, loads: Tensor, dropped: Tensor, name: str = "experts") -> None:
        super().__init__(name=name, dtype="int32")
        # Behind a function: what Keras sees a metric hold it takes for the metric's own, and carries twice.
        self._counters = lambda: (loads, dropped)

    def update_state(self, loads: Tensor, dropped: Tensor) -> None:
        """Adds int32 `(E,)` and `()`."""
        for variable, count in zip(self._counters(), (loads, dropped), strict=True):
            variable.assign(variable + count)

    def reset_state(self) -> None:
        for variable in self._counters():
            variable.assign(ops.zeros(variable.shape, "int32"))

    def result(self) -> dict[str, Tensor]:
        """dict of str to int32 `()`."""
        loads, dropped = (_value(variable) for variable in self._counters())
        counts = {f"{self.name}/load_{index}": loads[index] for index in range(loads.shape[0])}
        return counts | {f"{self.name}/dropped": dropped}


def _value(variable):
    try:
        return ops.convert_to_tensor(variable.value)
    except TypeError:
        # Inside a step on JAX the value is elsewhere: the logs of an epoch have it, those of a batch do not.
        return ops.zeros(variable.shape, "int32")
