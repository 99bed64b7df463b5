"""Training metric of a mixture of experts: assignments per expert."""

from __future__ import annotations

import keras
from keras import ops

from keras_transformer.utils.types import Tensor


class ExpertCounts(keras.metrics.Metric):
    """Number of assignments of each expert and of dropped assignments since the start of the epoch.

    The counters are weights of the layer, whose updates Keras keeps on all backends. On JAX it loses the updates of metrics
    in the call of a layer.

    Args:
        loads: int32 variable `(E,)`: assignments of each expert.
        dropped: int32 variable `()`: dropped assignments.
        name: str. Prefix of the log entries: "NAME/load_0", "NAME/load_1", ..., "NAME/dropped".
    """

    def __init__(self, loads: Tensor, dropped: Tensor, name: str = "experts") -> None:
        super().__init__(name=name, dtype="int32")
        # In a function, because Keras would track the variables as those of the metric, in addition to the layer's.
        self._counters = lambda: (loads, dropped)

    def update_state(self, loads: Tensor, dropped: Tensor) -> None:
        """Adds counts, int32 `(E,)` and `()`."""
        for variable, count in zip(self._counters(), (loads, dropped), strict=True):
            variable.assign(variable + count)

    def reset_state(self) -> None:
        for variable in self._counters():
            variable.assign(ops.zeros(variable.shape, "int32"))

    def result(self) -> dict[str, Tensor]:
        """Returns a dict from names to int32 `()`."""
        loads, dropped = (_value(variable) for variable in self._counters())
        counts = {f"{self.name}/load_{index}": loads[index] for index in range(loads.shape[0])}
        return counts | {f"{self.name}/dropped": dropped}


def _value(variable):
    try:
        return ops.convert_to_tensor(variable.value)
    except TypeError:
        # In a training step on JAX the value is not available: only the logs of whole epochs have it.
        return ops.zeros(variable.shape, "int32")
