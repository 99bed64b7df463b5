"""Models whose weights have no memory until their values are known.

Keras initializes all weights of a new model, which takes time and, for a large table, several times its memory. A checkpoint
then replaces them. Here each weight is created without a value and receives its first one from `allocate`.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator

import keras
import numpy as np

from keras_transformer.backend import keras_private
from keras_transformer.utils.types import Tensor

_LARGE = 2**20  # Bytes, from which a copy less is worth an aligned buffer.
_SHARED = ("float32", "float16")
_ALIGNMENT = 64


@contextlib.contextmanager
def unallocated() -> Iterator[None]:
    """Context in which new weights have shapes and paths but no values, until `allocate` is called on each.

    Example:

    >>> import keras
    >>> with unallocated():
    ...     model = keras.Sequential([keras.Input((10**6,)), keras.layers.Dense(10**6)])  # 4 TB
    >>> model.weights[0].shape[0]
    1000000
    """
    with keras_private.deferred_initialization():
        yield


def allocate(variable: keras.Variable, value: np.ndarray | None = None) -> None:
    """Gives a weight that was created in `unallocated` its value.

    Args:
        variable: `keras.Variable`.
        value: array of its shape, of any dtype. None runs the initializer of the weight.

    Example:

    >>> import keras, numpy as np
    >>> with unallocated():
    ...     model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, use_bias=False)])
    >>> allocate(model.weights[0], np.array([[1.0], [2.0]]))
    >>> model.weights[0].numpy().tolist()
    [[1.0], [2.0]]
    """
    if value is not None:
        keras_private.set_initializer(variable, lambda shape, dtype: _tensor(value, dtype))
    keras_private.initialize(variable)


def allocate_parts(variable: keras.Variable, read: Callable[[tuple[tuple[int, int], ...]], np.ndarray]) -> None:
    """Gives a weight that was created in `unallocated` its value, of which each device of the distribution gets its part.

    A process never has more of the value than the parts of its own devices, and one of these a second time.

    Args:
        variable: `keras.Variable`, on JAX, with a `keras.distribution` set.
        read: function of bounds, `(start, stop)` for each axis, to the array of that part. It is called once for each part.
    """
    import jax

    distribution = keras.distribution.distribution()
    assert distribution is not None
    sharding, shape = distribution.get_variable_layout(variable).backend_layout, tuple(variable.shape)
    parts, arrays = {}, []
    for device, index in sharding.addressable_devices_indices_map(shape).items():
        bounds = tuple(part.indices(size)[:2] for part, size in zip(index, shape, strict=True))
        if bounds not in parts:
            parts[bounds] = jax.device_put(read(bounds).astype(jax.numpy.dtype(variable.dtype)), device)
        arrays.append(jax.device_put(parts[bounds], device))
    value = jax.make_array_from_single_device_arrays(shape, sharding, arrays)
    keras_private.initialize_with(variable, value)


def _tensor(value: np.ndarray, dtype: str) -> Tensor:
    """Converts an array to a tensor of the backend."""
    if keras.backend.backend() != "tensorflow" or value.nbytes < _LARGE or dtype not in _SHARED:
        return keras.ops.convert_to_tensor(value, dtype)
    # TensorFlow would copy the array twice, into memory that it never releases; it takes over a buffer aligned as its own.
    import tensorflow as tf

    copy = _aligned(value.shape, dtype)
    np.copyto(copy, value, casting="unsafe")
    return tf.experimental.dlpack.from_dlpack(copy.__dlpack__())


def _aligned(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Returns an uninitialized array, aligned as TensorFlow's kernels require."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    memory = np.empty(size + _ALIGNMENT, "uint8")
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)
