"""The table of architectures: rivals of like size, and a verdict that counts what seeds make."""

import pathlib
import sys
import types

import numpy as np
import pytest

from keras_transformer.backend.devices.unallocated import unallocated

sys.path.append(str(pathlib.Path(__file__).parents[2] / "benchmarks"))
import architecture_tasks as tasks
import architectures

pytestmark = pytest.mark.slow

TASK = types.SimpleNamespace(vocabulary_size=500, image_size=32, chunk_size=16, num_neighbors=2)
# Many experts, each as large as what it stands for; one block for all places; and a twin that takes over weights.
OF_ANOTHER_SIZE = {"switch", "mixtral", "albert", "bitnet"}
RIVALS = [
    (task, name)
    for task, builders in architectures.MODELS.items()
    for name in builders
    if name != architectures.PLAIN and name not in OF_ANOTHER_SIZE
]


def parameters(task, name):
    with unallocated():
        model = architectures.MODELS[task][name](TASK)
    return sum(int(np.prod(weight.shape)) for weight in model.trainable_weights)


@pytest.mark.parametrize(("task", "name"), RIVALS)
def test_rivals_are_of_like_size(task, name):
    plain = parameters(task, architectures.PLAIN)
    assert 0.6 * plain < parameters(task, name) < 1.7 * plain


@pytest.mark.parametrize(
    ("task", "figure", "expected"),
    [
        (tasks.Characters, 2.02, "as good"),
        (tasks.Characters, 1.9, "better"),
        (tasks.Characters, 2.1, "worse"),
        (tasks.Images, 2.1, "better"),
        (tasks.Images, 1.9, "worse"),
    ],
)
def test_what_seeds_make_is_no_difference(task, figure, expected):
    assert architectures.verdict(task, figure, plain=2.0, spread=0.03) == expected


def test_every_task_has_its_models_and_a_plain_one():
    assert set(architectures.MODELS) == set(tasks.TASKS)
    assert all(architectures.PLAIN in builders for builders in architectures.MODELS.values())
