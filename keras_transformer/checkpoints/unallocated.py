"""Models without memory for their weights, until these are known.

Keras builds a model with random weights first, which takes the time and, for a large table, several times the memory of what
is then thrown away. Inside a `keras.StatelessScope` it only notes how a weight would begin; here a weight begins as its
tensor. Keras has no public way to do that: this file is the only one that touches the private attributes.
"""

import contextlib

import keras
from keras.src.backend.common import global_state

_PENDING = "uninitialized_variables"


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
        variable._initializer = lambda shape, dtype: keras.ops.convert_to_tensor(value, dtype)
    variable._deferred_initialize()
