"""Loops on TensorFlow, which layers do not import: iterations that do not overlap, and lists of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import keras
from keras import ops

from keras_transformer.utils.types import Tensor

if TYPE_CHECKING:
    import tensorflow as tf


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


def row_list(like: Tensor, count: int | Tensor) -> tf.TensorArray:
    """Returns an empty `tf.TensorArray` of `count` rows.

    Args:
        like: tensor `(n, ...)` whose rows have the dtype and shape of the new ones.
        count: int or int tensor `()`.
    """
    import tensorflow as tf

    return tf.TensorArray(like.dtype, count, element_shape=like.shape[1:])
