"""The time of a call of a runtime model, measured while it is verified."""

import statistics
import time
from collections.abc import Mapping

import numpy as np

from keras_transformer.export.runtime.runtime_model import RuntimeModel

_MOST_CALLS, _FEWEST_CALLS = 10, 3
_SECONDS = 0.5


def milliseconds(model: RuntimeModel, inputs: Mapping[str, np.ndarray]) -> float:
    """The median time of a call in milliseconds, after the calls of the comparison; of fewer calls if they are long."""
    seconds: list[float] = []
    while len(seconds) < _FEWEST_CALLS or (len(seconds) < _MOST_CALLS and sum(seconds) < _SECONDS):
        start = time.perf_counter()
        model(inputs)
        seconds.append(time.perf_counter() - start)
    return 1000 * statistics.median(seconds)
