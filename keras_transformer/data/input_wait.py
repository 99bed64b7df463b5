"""How long a training would wait for its batches."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import NamedTuple


class InputWait(NamedTuple):
    """What `input_wait` measures.

    Attributes:
        steps: int. Number of batches.
        seconds: float. The mean time that a step waits for its batch.
        longest: float. The longest such time, in seconds.
        share: float in [0, 1). The fraction of the training's time that is waiting.

    Example:

    >>> InputWait(steps=50, seconds=0.01, longest=0.02, share=0.1).share
    0.1
    """

    steps: int
    seconds: float
    longest: float
    share: float


def input_wait(batches: Iterable[object], step_seconds: float, steps: int = 50, warm_up: int = 3) -> InputWait:
    """Measures how long steps of a given time wait for their batches; nothing is trained.

    It takes a batch, sleeps for the time of a step, during which a pipeline that loads ahead prepares the next ones, and so
    on. A device is fast enough for a pipeline whose `share` is about 0. If it is not: `tf.data.Dataset.prefetch`, `map` with
    `num_parallel_calls=tf.data.AUTOTUNE`, and `cache` for what fits the memory. `BatchStream.repeat` and `epoch` load ahead.

    Args:
        batches: iterable of batches, such as a `tf.data.Dataset`, of at least one batch.
        step_seconds: float >= 0. The time of a training step, as `benchmarks/gpu_training.py` measures it for a device.
        steps: int >= 1. The most batches to take. Default 50.
        warm_up: int >= 0. Number of batches before, which are not counted: the first one starts the pipeline. Default 3.

    Returns:
        `InputWait`.

    Raises:
        ValueError: an argument is out of its range; there are no more than `warm_up` batches.

    Example:

    >>> found = input_wait(([index] for index in range(5)), step_seconds=0.01, warm_up=1)
    >>> found.steps, found.share < 0.5
    (4, True)
    """
    for name, value, least in (("step_seconds", step_seconds, 0), ("steps", steps, 1), ("warm_up", warm_up, 0)):
        if value < least:
            raise ValueError(f"{name} must be at least {least}. Received: {value}")
    iterator, waits = iter(batches), []
    for _ in range(warm_up + steps):
        start = time.perf_counter()
        try:
            next(iterator)
        except StopIteration:
            break
        waits.append(time.perf_counter() - start)
        time.sleep(step_seconds)
    counted = waits[warm_up:]
    if not counted:
        raise ValueError(f"There are only {len(waits)} batches, with warm_up={warm_up}.")
    seconds = sum(counted) / len(counted)
    return InputWait(len(counted), seconds, max(counted), seconds / max(seconds + step_seconds, 1e-9))
