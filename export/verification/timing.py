"""The time of a call of a runtime model, measured while it is verified."""

import statistics
import time
from collections.abc import Mapping

import numpy as np

from keras_transformer.export.runtime.runtime_model import RuntimeModel

_TIMED_CALLS = 10


def milliseconds(model: RuntimeModel, inputs: Mapping[str, np.ndarray]) -> float:
    """The median time of a call in milliseconds, after the calls of the comparison."""
    seconds = []
    for _ in range(_TIMED_CALLS):
        start = time.perf_counter()
        model(inputs)
        seconds.append(time.perf_counter() - start)
    return 1000 * statistics.median(seconds)
