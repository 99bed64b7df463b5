"""Batched requests get the same answers as single ones, and a failing request does not affect others."""

import numpy as np
import pytest

from keras_transformer.export import ArraySpec, RunError
from keras_transformer.export.serving.batching import run_batched

X = ArraySpec("x", "float32", (None, None), ("batch", "length"))
Y = ArraySpec("y", "float32", (None,), ("batch",))
TOTAL = ArraySpec("total", "float32", (), ())


class Model:
    """Sums rows; raises for negative numbers, as an embedding does for unknown ids."""

    def __init__(self, *outputs):
        self.inputs, self.outputs, self.calls = (X,), outputs, []

    def __call__(self, arrays):
        x = arrays["x"]
        self.calls.append(x.shape)
        if (x < 0).any():
            raise RunError("onnx", "serve", "out of bounds")
        return {spec.name: x.sum() if spec is TOTAL else x.sum(1) for spec in self.outputs}


def asks(*shapes):
    random = np.random.default_rng(0)
    return [{"x": random.random(shape).astype("float32")} for shape in shapes]


def test_equal_shapes_go_together():
    model, given = Model(Y), asks((1, 3), (2, 3), (1, 4), (1, 3), (3, 3), (9, 4))
    answers, sizes = run_batched(model, given, max_batch_size=5)
    assert model.calls == [(4, 3), (1, 4), (3, 3), (9, 4)]
    assert sizes == [4, 1, 3, 9]
    for ask, answer in zip(given, answers, strict=True):
        np.testing.assert_array_equal(answer["y"], ask["x"].sum(1))


def test_one_that_fails_spoils_no_other():
    model, given = Model(Y), asks((1, 3), (2, 3), (1, 3))
    given[1]["x"] *= -1
    answers, _ = run_batched(model, given, max_batch_size=8)
    assert isinstance(answers[1], RunError)
    for place in (0, 2):
        np.testing.assert_array_equal(answers[place]["y"], given[place]["x"].sum(1))


def test_what_has_no_batch_is_computed_alone():
    model, given = Model(Y, TOTAL), asks((1, 3), (2, 3))
    answers, sizes = run_batched(model, given, max_batch_size=8)
    assert model.calls == [(1, 3), (2, 3)]
    assert sizes == [1, 1]
    assert answers[1]["total"] == pytest.approx(given[1]["x"].sum())
