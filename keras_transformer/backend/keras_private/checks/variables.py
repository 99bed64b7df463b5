"""Self-tests of the private attributes of variables."""

from __future__ import annotations

import keras
import numpy as np
from keras import ops

from keras_transformer.backend import keras_private as private
from keras_transformer.backend.keras_private.checks.self_tests import SelfTests, expect

CHECKS = SelfTests()


@CHECKS.of("keras.src.backend.AutocastScope")
def _autocast_scope() -> None:
    variable = keras.Variable([1.0], dtype="float32")
    with private.autocast_scope("float16"):
        expect(keras.backend.standardize_dtype(ops.add(variable, 0).dtype), "float16")
        with private.autocast_scope(None):
            expect(keras.backend.standardize_dtype(ops.add(variable, 0).dtype), "float32")


@CHECKS.of("keras.src.backend.common.stateless_scope.get_stateless_scope")
def _stateless_scope() -> None:
    expect(private.stateless_scope(), None)
    with keras.StatelessScope() as scope:
        expect(private.stateless_scope() is scope, True)


@CHECKS.of("Variable._autocast")
def _disable_autocast() -> None:
    variable = keras.Variable([1.0], dtype="float32")
    private.disable_autocast(variable)
    with private.autocast_scope("float16"):
        expect(keras.backend.standardize_dtype(ops.add(variable, 0).dtype), "float32")


@CHECKS.of("global_state uninitialized_variables, Variable._value, ._initializer, ._deferred_initialize")
def _deferred_initialization() -> None:
    with private.deferred_initialization():
        variable = keras.Variable("zeros", shape=(2,), dtype="float32")
    expect(private.has_value(variable), False)
    # The end of the next scope initializes all variables that are still registered.
    with keras.StatelessScope(initialize_variables=True):
        pass
    expect(private.has_value(variable), False)
    first = private.initializer(variable)
    private.set_initializer(variable, lambda shape, dtype: first(shape, dtype) + 3)
    private.initialize(variable)
    expect(private.has_value(variable), True)
    expect(np.asarray(variable).tolist(), [3.0, 3.0])


@CHECKS.of("Variable._initialize")
def _initialize_with() -> None:
    with private.deferred_initialization():
        variable = keras.Variable("zeros", shape=(2,), dtype="float32")
    private.initialize_with(variable, ops.ones(2))
    expect((np.asarray(ops.convert_to_numpy(variable)).tolist(), private.initializer(variable)), ([1.0, 1.0], None))
