"""Every class of `keras.layers` has a case that `benchmarks/every_layer.py` tries."""

import importlib
import pathlib

import keras
import pytest

pytestmark = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the exporter's own process")


@pytest.fixture
def module(monkeypatch):
    monkeypatch.syspath_prepend(pathlib.Path(__file__).parents[2] / "benchmarks")
    return importlib.import_module


def test_every_class_has_a_case_or_a_reason(module):
    cases = module("layer_cases")
    assert set(cases.CASES) | set(cases.EXCLUDED) == set(cases.classes())
    assert not set(cases.CASES) & set(cases.EXCLUDED)


def test_every_kind_of_application_is_tried(module):
    kinds = {getattr(keras.applications, name).__module__ for name in module("layer_cases").APPLICATIONS}
    found = {each.__module__ for each in vars(keras.applications).values() if callable(each)}
    assert kinds == found


def test_a_cell_names_the_cases_that_are_not_proven(module):
    cell = module("keras_cells").cell
    assert cell({"a=1": "proven", "a=2": "proven"}) == "proven"
    found = {"a=1": "proven", "a=2": "WeightError: x", "a=3": "WeightError: x", "a=4": "WRONG"}
    assert cell(found) == "1 of 4; a=2 / a=3: WeightError: x; a=4: WRONG"
