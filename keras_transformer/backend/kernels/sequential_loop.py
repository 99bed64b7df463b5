"""A loop whose iterations do not overlap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
from keras import ops


def sequential_loop(
    condition: Callable[..., object], body: Callable[..., object], state: tuple[Any, ...]
) -> tuple[Any, ...]:
    """Returns `keras.ops.while_loop(condition, body, state)`, with the memory of one iteration.

    TensorFlow, outside of XLA, begins up to ten iterations before the first ends, wherever one does not need the results of
    the one before, and keeps the tensors of all.

    Example:

    >>> [int(x) for x in sequential_loop(lambda i, x: i < 3, lambda i, x: (i + 1, 2 * x), (0, 1))]
    [3, 8]
    """
    if keras.backend.backend() != "tensorflow":
        return ops.while_loop(condition, body, state)
    import tensorflow as tf

    return tf.while_loop(condition, body, state, parallel_iterations=1)
