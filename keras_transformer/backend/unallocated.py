"""Models without memory for their weights, until these are known.

Keras builds a model with random weights first, which takes the time and, for a large table, several times the memory of what
is then thrown away. Inside a `keras.StatelessScope` it only notes how a weight would begin; here a weight begins as its
tensor. Keras has no public way to do that: this file is the only one that touches the private attributes.
"""

import contextlib
import math

import keras
import numpy as np
from keras.src.backend.common import global_state

_PENDING = "uninitialized_variables"
_LARGE = 2**20  # Bytes, from which it matters where a tensor comes to lie.
_SHARED = ("float32", "float16")
_ALIGNMENT = 64


@contextlib.contextmanager
def unallocated():
    """Weights that are made in this context have shapes and paths, and no values before `allocate`.

    Example:

    >>> import keras
    >>> with unallocated():
    ...     model = keras.Sequential([keras.Input((10**6,)), keras.layers.Dense(10**6)])  # 4 TB
    >>> model.weights[0].shape[0]
    1000000
    """
    before = list(global_state.get_global_attribute(_PENDING, []))
    try:
        with keras.StatelessScope(initialize_variables=False):
            yield
    finally:
        # What was made here is filled by hand, or never.
        global_state.set_global_attribute(_PENDING, before)


def allocate(variable, value=None):
    """Gives a weight made in `unallocated` its values.

    Args:
        variable: `keras.Variable`.
        value: array of its shape, in any dtype; None for the values that its initializer gives.
    """
    if value is not None:
        variable._initializer = lambda shape, dtype: _tensor(value, dtype)
    variable._deferred_initialize()


def _tensor(value, dtype):
    """The numbers as a tensor of a backend."""
    if keras.backend.backend() != "tensorflow" or value.nbytes < _LARGE or dtype not in _SHARED:
        return keras.ops.convert_to_tensor(value, dtype)
    # TensorFlow would copy the array twice, into memory that it keeps; a copy that is aligned as its own it takes over.
    import tensorflow as tf

    copy = _aligned(value.shape, dtype)
    np.copyto(copy, value, casting="unsafe")
    return tf.experimental.dlpack.from_dlpack(copy.__dlpack__())


def _aligned(shape, dtype):
    """An array that begins where TensorFlow's kernels want it to."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    memory = np.empty(size + _ALIGNMENT, "uint8")
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)
