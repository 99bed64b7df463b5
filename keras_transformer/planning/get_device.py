"""Devices by name, and this machine's processor."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from keras_transformer.planning.devices import DEVICES, Device, Reached
from keras_transformer.planning.errors import PlanningError
from keras_transformer.planning.graph.access import Access
from keras_transformer.utils.choice import choice

if TYPE_CHECKING:
    import tensorflow as tf

# As large as what a training moves, and done within some milliseconds, so that other processes interrupt few of them.
_SIDE = 768
_ROWS, _COLUMNS = 1536, 4096
_BYTES = 4 * _ROWS * _COLUMNS


def get_device(name: str) -> Device:
    """Returns a device by its name.

    Args:
        name: str, in upper or lower case: a key of `DEVICES`, or "here" for this processor, measured.

    Raises:
        PlanningError: an unknown name; the message suggests the nearest and lists the known ones.

    Example:

    >>> get_device("H100").memory
    80
    """
    if name == "here":
        return this_processor()
    try:
        return choice(name.lower(), DEVICES, argument="device")
    except ValueError as error:
        raise PlanningError(str(error)) from None


def this_processor() -> Device:
    """Returns this processor as a device, each rate that of the fastest of some operations of TensorFlow."""
    import tensorflow as tf

    side = tf.random.normal((_SIDE, _SIDE))
    x = tf.random.normal((_ROWS, _COLUMNS))
    product = _fastest(lambda: tf.matmul(side, side), repeats=30)
    scaling = _fastest(lambda: x * 2.0)
    exponential = _fastest(lambda: tf.exp(x))
    bandwidth = 2 * _BYTES / scaling
    functions = _BYTES / 4 / max(exponential - scaling, scaling / 10)
    reached = Reached(1.0, 1.0, 1.0, functions=functions / 1e9, access=_access(x, bandwidth))
    return Device(2 * _SIDE**3 / product / 1e12, _memory() / 1e9, bandwidth / 1e9, 0.0, 1.0, False, reached=reached)


def _access(x: tf.Tensor, bandwidth: float) -> Access:
    """Measures the fractions of a bandwidth, in bytes per second, that kinds of operations reach."""
    import tensorflow as tf

    heads = tf.reshape(x, (4, _ROWS // 4, _COLUMNS // 64, 64))
    labels, rows = tf.zeros((_ROWS,), "int32"), tf.random.shuffle(tf.range(_ROWS))

    # Function and the bytes that it moves, as `counting` counts them.
    kinds: dict[str, tuple[Callable[[], tf.Tensor], float]] = {
        "transposed": (lambda: tf.transpose(heads, (0, 2, 1, 3)), 2 * _BYTES),
        "columns": (lambda: tf.reduce_sum(x, 0), _BYTES),
        "pieces": (lambda: tf.concat([x, x], 1), 3 * _BYTES),
        "scattered": (lambda: tf.math.unsorted_segment_sum(x, rows, _ROWS), 2 * _BYTES),
        "losses": (lambda: tf.nn.sparse_softmax_cross_entropy_with_logits(labels, x), 2 * _BYTES),
        "random": (lambda: tf.random.stateless_uniform((_ROWS // 4, _COLUMNS), (1, 2)), _BYTES / 4),
    }
    return Access(**{kind: moved / _fastest(run) / bandwidth for kind, (run, moved) in kinds.items()})


def _fastest(run: Callable[[], object], repeats: int = 10) -> float:
    times = []
    for _ in range(repeats + 1):  # The first allocates.
        start = time.perf_counter()
        run()  # Returns when it is done.
        times.append(time.perf_counter() - start)
    return min(times[1:])


def _memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
