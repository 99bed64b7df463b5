"""When the memory of a TFLite signature is planned again: before shapes of dynamic inputs are used a second time."""

import numpy as np
import pytest

from keras_transformer.export.tflite.runtime import PlannedRunner


class Runner:
    """A double of LiteRT's `SignatureRunner`, which notes what it is told."""

    _inputs, _subgraph_index = {"steps": 3, "x": 7}, 2

    def __init__(self, signature):
        self._signature, self.notes = signature, []
        self._interpreter_wrapper = self

    def get_input_details(self):
        numbers = {"dtype": np.float32, "quantization": (0.0, 0)}
        return {"x": {"shape_signature": self._signature, **numbers}, "steps": {"shape_signature": [], **numbers}}

    def get_output_details(self):
        return {}

    def ResizeInputTensor(self, index, shape, strict, graph):
        self.notes.append((index, *shape.tolist(), graph))

    def __call__(self, **arrays):
        self.notes.append("call")
        return {}


def notes(signature, *calls, **options):
    runner = Runner(signature)
    planned = PlannedRunner(runner, **options)
    for rows, steps in calls:
        planned({"steps": np.array(steps), "x": np.zeros((rows, 5))})
    return runner.notes


AGAIN = [(7, 3, 5, 2), (7, 2, 5, 2), "call"]


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ([(2, 1), (2, 1), (2, 1)], ["call", *AGAIN, "call"]),
        ([(2, 1), (4, 1), (2, 1), (2, 1)], ["call", "call", "call", *AGAIN]),
        ([(2, 1), (2, 9), (2, 9)], ["call", "call", *AGAIN]),  # A number of steps is a size, too.
    ],
)
def test_shapes_that_come_again_are_planned_again(calls, expected):
    assert notes([-1, 5], *calls) == expected


def test_new_shapes_of_a_loop_are_computed_twice():
    found = notes([-1, 5], (2, 1), (2, 1), (4, 1), (2, 1), runs_twice=True)
    assert found == ["call", *AGAIN, "call", "call", (7, 5, 5, 2), (7, 4, 5, 2), "call", "call", *AGAIN]


def test_fixed_shapes_are_not():
    assert notes([2, 5], (2, 1), (2, 1)) == ["call", "call"]
