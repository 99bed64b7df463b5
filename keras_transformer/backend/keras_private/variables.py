"""Variables: their conversion to another dtype, and their initialization."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import keras

from keras_transformer.utils.types import Tensor

_UNINITIALIZED = "uninitialized_variables"


def autocast_scope(dtype: str | None) -> AbstractContextManager[object]:
    """Returns a context in which float variables are read as `dtype`; as they are stored if None."""
    from keras.src.backend import AutocastScope

    return AutocastScope(dtype)


def stateless_scope() -> keras.StatelessScope | None:
    """Returns the innermost `keras.StatelessScope` that is open, or None."""
    from keras.src.backend.common.stateless_scope import get_stateless_scope

    return get_stateless_scope()


def disable_autocast(variable: keras.Variable) -> None:
    """Disables the conversion of `variable` to the compute dtype of its layer."""
    variable._autocast = False


def has_value(variable: keras.Variable) -> bool:
    """Returns whether `variable` has a value; inside a `keras.StatelessScope` its initialization is deferred."""
    return variable._value is not None


def initializer(variable: keras.Variable) -> Callable[..., Tensor]:
    """Returns the initializer of a variable that has no value yet."""
    return variable._initializer


def set_initializer(variable: keras.Variable, function: Callable[..., Tensor]) -> None:
    """Replaces the initializer of a variable that has no value yet by `function(shape, dtype)`."""
    variable._initializer = function


def initialize(variable: keras.Variable) -> None:
    """Gives a variable whose initialization is deferred the value of its initializer."""
    variable._deferred_initialize()


def initialize_with(variable: keras.Variable, value: Tensor) -> None:
    """Gives a variable whose initialization is deferred a value of its shape and dtype, in its layout on several devices."""
    variable._initialize(value)
    variable._initializer = None


@contextlib.contextmanager
def deferred_initialization() -> Iterator[None]:
    """Context in which new variables get no value, neither in it nor after it, before `initialize` is called on them."""
    from keras.src.backend.common import global_state

    before = list(global_state.get_global_attribute(_UNINITIALIZED, []))
    try:
        with keras.StatelessScope(initialize_variables=False):
            yield
    finally:
        # Keras would initialize those created in the scope at its end, or at the end of the outermost one.
        global_state.set_global_attribute(_UNINITIALIZED, before)
