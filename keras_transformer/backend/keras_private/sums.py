"""Sums of Keras, as `predict` computes them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

import keras
from keras import ops

from keras_transformer.utils.types import Tensor

_lock = threading.RLock()


@contextlib.contextmanager
def sums_of_columns() -> Iterator[None]:
    """Context in which this thread's eager sums add a column `(B, 1)` to the columns of a matrix.

    Keras takes it for a bias, which is added to the rows, where `B` is the number of columns too. It does not in `predict`,
    where `B` is unknown. Does nothing on other backends than TensorFlow.
    """
    from keras.src import backend

    if keras.backend.backend() != "tensorflow":
        yield
        return
    import tensorflow as tf

    functions, thread = vars(backend.numpy), threading.get_ident()
    before: Callable[[Tensor, Tensor], Tensor] = functions["add"]

    def is_column(x1: Tensor, x2: Tensor) -> bool:
        shape, column = (list[int](getattr(each, "shape", ())) for each in (x1, x2))
        is_one_per_row = len(column) > 1 and column[0] > 1 and all(size == 1 for size in column[1:])
        return is_one_per_row and len(shape) == len(column) and shape[0] == column[0]

    def add(x1: Tensor, x2: Tensor) -> Tensor:
        if tf.executing_eagerly() and threading.get_ident() == thread and is_column(x1, x2):
            return before(x1, ops.broadcast_to(x2, x1.shape))
        return before(x1, x2)

    with _lock:
        try:
            functions["add"] = add
            yield
        finally:
            functions["add"] = before
