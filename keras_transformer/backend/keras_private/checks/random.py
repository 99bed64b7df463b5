"""Self-tests of the random numbers of Keras."""

from __future__ import annotations

import keras
from keras import ops

from keras_transformer.backend import keras_private as private
from keras_transformer.backend.keras_private.checks.self_tests import SelfTests, expect
from keras_transformer.utils.types import Shape, Tensor

CHECKS = SelfTests()


@CHECKS.of("backend.random.normal, backend.random.uniform, backend.random.dropout")
def _replaced_draws() -> None:
    kinds: list[str] = []

    def draw(kind: str, shape: Shape) -> Tensor:
        kinds.append(kind)
        return ops.full(shape, 0.25)

    with private.replaced_draws(draw):
        found = [
            keras.random.normal((1,), mean=1.0, stddev=2.0),
            keras.random.uniform((1,), minval=1.0, maxval=5.0),
            keras.random.dropout(ops.ones((1,)), 0.2),
            keras.layers.Dropout(0.5)(ops.ones((1,)), training=True),
        ]
    expect([round(float(each[0]), 4) for each in found], [1.5, 2.0, 1.25, 0.0])
    expect(kinds, ["normal", "uniform", "uniform", "uniform"])
