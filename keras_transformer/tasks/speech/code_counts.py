"""Training metrics of contrastive pretraining."""

from __future__ import annotations

import keras
from keras import ops

from keras_transformer.utils.types import Tensor

# Perplexities are added up as integers, in this unit.
_UNIT = 1000


class CodeCounts(keras.metrics.Metric):
    """Accuracy of the choice of targets, and perplexity of the codebooks, since the start of the epoch.

    The counters are weights of the layer, as those of `ExpertCounts`: on JAX, Keras loses the updates of
    metrics in the call of a layer. They are integers, which are no part of a checkpoint.

    Args:
        counters: int32 variable `(4,)`: hits, frames, perplexities in thousandths, and steps.
        name: str.
    """

    def __init__(self, counters: keras.Variable, name: str = "codes") -> None:
        super().__init__(name=name, dtype="int32")
        # In a function, because Keras would track the variable as one of the metric, in addition to the layer's.
        self._counters = lambda: counters

    def update_state(self, hits: Tensor, frames: Tensor, perplexity: Tensor) -> None:
        """Adds what a step found: int32 `()`, int32 `()` and float `()`."""
        parts = [hits, frames, ops.round(perplexity * _UNIT), 1]
        counters = self._counters()
        counters.assign(counters + ops.stack([ops.cast(part, "int32") for part in parts]))

    def reset_state(self) -> None:
        self._counters().assign(ops.zeros((4,), "int32"))

    def result(self) -> dict[str, Tensor]:
        """Returns a dict of "accuracy" and "code_perplexity", floats `()`."""
        hits, frames, perplexity, steps = ops.unstack(ops.cast(_value(self._counters()), "float32"), 4)
        return {
            "accuracy": hits / ops.maximum(frames, 1.0),
            "code_perplexity": perplexity / _UNIT / ops.maximum(steps, 1.0),
        }


def _value(variable):
    try:
        return ops.convert_to_tensor(variable.value)
    except TypeError:
        # In a training step on JAX the value is not available: only the logs of whole epochs have it.
        return ops.zeros(variable.shape, "int32")
