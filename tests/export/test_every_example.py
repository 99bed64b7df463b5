"""Models of other fields and situations of users: those of kinds that no other test has."""

import importlib
import json
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest

pytestmark = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the exporter's own process")
BENCHMARKS = pathlib.Path(__file__).parents[2] / "benchmarks"
FORMATS = ("saved_model", "tflite", "onnx")
# Ids of a subclassed model, square inputs, divided pixels, bytes that are resized, a loop of states.
EXAMPLES = ("citations", "graph_convolution", "dueling_q_network", "mlp_mixer", "session_gru")
SITUATIONS = ("which_pixels_mattered", "mc_dropout_uncertainty", "random_numbers_of_tensorflow", "averaged_weights")


@pytest.fixture
def module(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module


def _results(command, names, path):
    options = [str(BENCHMARKS / f"{command}.py"), "--only", *names, "--json", str(path)]
    subprocess.run([sys.executable, *options], capture_output=True, check=False)
    return json.loads(path.read_text())


@pytest.mark.exhaustive
def test_models_of_other_fields_are_proven(tmp_path):
    found = _results("every_example", EXAMPLES, tmp_path / "found.json")
    for name in EXAMPLES:
        assert {format: found[name][format] for format in FORMATS} == dict.fromkeys(FORMATS, "proven"), name


@pytest.mark.exhaustive
def test_situations_work_or_have_a_remedy_that_works(tmp_path):
    found = _results("every_situation", SITUATIONS, tmp_path / "found.json")
    for name in SITUATIONS:
        expected = "refused; with the remedy it works" if name == "random_numbers_of_tensorflow" else "works"
        assert [found[name][format].split(":")[0] for format in FORMATS] == [expected] * 3, found[name]


def test_every_function_of_a_field_is_tried(module):
    for table, modules in (
        (module("example_models").EXAMPLES, module("example_models").FIELDS),
        (module("situations").SITUATIONS, module("situations").TOPICS),
    ):
        for each in modules.values():
            public = {
                name
                for name, value in vars(each).items()
                if callable(value) and value.__module__ == each.__name__ and name[0].islower()
            }
            assert public == set(table) & public, each.__name__
    assert len(module("example_models").EXAMPLES) >= 40
    assert len(module("situations").SITUATIONS) >= 30


def test_a_file_of_another_result_is_wrong(module):
    difference = module("keras_exporter").difference
    one, other = np.ones((2, 3), "float32"), np.full((2, 3), 2, "float32")
    assert difference([other, one], [one, other]) == "right"
    assert difference([one, one.copy()], [one, other]) == "wrong by 5e-01 of the scale"
    assert difference([one.T], [one]) == "wrong: no output of shape (2, 3)"
