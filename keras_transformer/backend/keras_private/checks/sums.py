"""Self-test of the sums of Keras."""

from __future__ import annotations

from keras import ops

from keras_transformer.backend import keras_private as private
from keras_transformer.backend.keras_private.checks.self_tests import SelfTests, expect

CHECKS = SelfTests()


@CHECKS.of("backend.numpy.add")
def _sums_of_columns() -> None:
    rows, column = ops.zeros((2, 2)), ops.convert_to_tensor([[1.0], [2.0]])
    with private.sums_of_columns():
        found = ops.convert_to_numpy(ops.add(rows, column))
    expect(found.tolist(), [[1.0, 1.0], [2.0, 2.0]])
