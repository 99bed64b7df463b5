"""Products and updates in the forms that XLA computes soonest on a CPU, in the functions that it compiles."""

from __future__ import annotations

import contextlib
import contextvars
import math
from collections.abc import Callable, Iterator

import keras
from keras import ops

from keras_transformer.utils.types import Tensor

# With 16 queries the other order takes half the time, with 256 a quarter more.
_FEW_QUERIES = 32
# As fast as 16, and faster than 2 or 4.
_PARTS = 8
_is_compiled: contextvars.ContextVar[bool] = contextvars.ContextVar("is_compiled_by_xla", default=False)
_is_to_be_fused: contextvars.ContextVar[bool] = contextvars.ContextVar("is_to_be_fused", default=False)


@contextlib.contextmanager
def compiled_by_xla() -> Iterator[None]:
    """Within it, the functions of this module take the forms for XLA; also a decorator: `compiled_by_xla()(function)`.

    For functions that are traced to be compiled by it; what is exported has the plain forms.
    """
    token = _is_compiled.set(all(device.startswith("cpu") for device in keras.distribution.list_devices()))
    try:
        yield
    finally:
        _is_compiled.reset(token)


def is_traced_for_xla() -> bool:
    """Returns whether what is being traced will be compiled by XLA: always with JAX, with TensorFlow under `jit_compile`.

    Example:

    >>> import tensorflow as tf
    >>> [bool(tf.function(is_traced_for_xla, jit_compile=choice)()) for choice in (True, False)]
    [True, False]
    """
    if keras.backend.backend() != "tensorflow":
        return keras.backend.backend() == "jax"
    import tensorflow as tf
    from tensorflow.python.ops import control_flow_util

    # TensorFlow enters this context before it traces a function that is to be compiled.
    return control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph())


@contextlib.contextmanager
def traced_for_fusion() -> Iterator[None]:
    """Within it, `is_unfused` is False: for graphs that describe what a compiler would fuse, such as those of `plan`."""
    token = _is_to_be_fused.set(True)
    try:
        yield
    finally:
        _is_to_be_fused.reset(token)


def is_unfused() -> bool:
    """Returns whether what is being traced is a graph whose operations run one by one: of TensorFlow, without XLA.

    Example:

    >>> import tensorflow as tf
    >>> [bool(tf.function(is_unfused, jit_compile=choice)()) for choice in (True, False)]
    [False, True]
    """
    if keras.backend.backend() != "tensorflow" or is_traced_for_xla() or _is_to_be_fused.get():
        return False
    import tensorflow as tf

    return not tf.executing_eagerly()


def kernel_product(x: Tensor, kernel: Tensor) -> Tensor:
    """Returns the product of `(..., inputs)`, usually a matrix, and a kernel `(inputs..., outputs...)`.

    XLA compiles the product of a single row to a plain loop, into which it also fuses the reshape of a kernel of three axes:
    that takes 7 to 20 times longer than it should for 1,024 to 2,048 inputs. Products of parts of the row, as a batch of
    matrices, are left to its library of matrix products; their sum takes no more time than the product with a matrix.

    Args:
        x: float `(..., inputs)`.
        kernel: float of any rank, whose first axes have `inputs` elements together.

    Returns:
        `(..., outputs)`.

    Example:

    >>> import numpy as np
    >>> x, kernel = np.array([[1.0, 2.0]]), np.arange(12.0).reshape(2, 3, 2)
    >>> with compiled_by_xla():
    ...     kernel_product(x, kernel).numpy().tolist()
    [[12.0, 15.0, 18.0, 21.0, 24.0, 27.0]]
    """
    *rows, inputs = x.shape
    parts = math.gcd(inputs, _PARTS)
    if rows != [1] or parts == 1 or not _is_compiled.get():
        return ops.matmul(x, ops.reshape(kernel, (inputs, -1)))
    split = ops.reshape(x, (parts, 1, inputs // parts))
    return ops.sum(ops.matmul(split, ops.reshape(kernel, (parts, inputs // parts, -1))), axis=0)


def dot_products(query: Tensor, key: Tensor) -> Tensor:
    """Returns the products of queries `(B, N, T, H)` and keys `(B, S, N, H)` of each head, `(B, N, T, S)`.

    XLA transposes the second factor of a product in memory. For few queries the keys are made the first one, and the small
    product is transposed instead.

    Example:

    >>> import numpy as np
    >>> query, key = np.array([[[[1.0, 2.0]]]]), np.array([[[[3.0, 4.0]], [[5.0, 6.0]]]])
    >>> with compiled_by_xla():
    ...     dot_products(query, key).numpy().tolist()
    [[[[11.0, 17.0]]]]
    """
    length = query.shape[2]
    if length is None or length > _FEW_QUERIES or not _is_compiled.get():
        return ops.matmul(query, ops.transpose(key, (0, 2, 3, 1)))
    by_key = ops.matmul(ops.transpose(key, (0, 2, 1, 3)), ops.transpose(query, (0, 1, 3, 2)))
    return ops.transpose(by_key, (0, 1, 3, 2))


def update_once(update: Callable[[Tensor], Tensor], tensor: Tensor, cache_index: Tensor | None) -> Tensor:
    """Returns `update(tensor)`, for updates of a few rows of a large tensor that is also read afterwards.

    XLA fuses such an update into each of its readers, so that the tensor is copied for each of them. It leaves the branches
    of a condition alone, within which the rows are written in place.

    Args:
        update: function of the tensor that returns its next value, of the same shape.
        tensor: the tensor.
        cache_index: int `()` or `(B,)`, at least 0, which XLA does not know; an int of Python is no condition.

    Returns:
        The next value.

    Example:

    >>> with compiled_by_xla():
    ...     update_once(lambda x: ops.scatter_update(x, [[1]], [5.0]), ops.zeros((3,)), ops.array(1)).numpy().tolist()
    [0.0, 5.0, 0.0]
    """
    if isinstance(cache_index, int) or not _is_compiled.get():
        return update(tensor)
    return ops.cond(ops.min(cache_index) >= 0, lambda: update(tensor), lambda: tensor)
