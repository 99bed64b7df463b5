"""Every public function of Keras has a case that `benchmarks/every_operation.py` tries."""

import importlib
import pathlib

import keras
import pytest

pytestmark = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the exporter's own process")


@pytest.fixture
def functions(monkeypatch):
    monkeypatch.syspath_prepend(pathlib.Path(__file__).parents[2] / "benchmarks")
    return importlib.import_module("keras_functions")


def test_every_function_has_a_case(functions):
    assert functions.missing() == []


def test_a_function_that_comes_with_a_new_keras_is_missing(functions, monkeypatch):
    monkeypatch.setattr(keras.ops, "brand_new", lambda x: x, raising=False)
    assert functions.missing() == ["brand_new"]


def test_a_case_has_the_sizes_of_its_arrays(functions):
    case = functions.CASES["matmul", ""]
    fixed, dynamic = case.inputs("fixed"), case.inputs("dynamic")
    for one, other in zip(fixed, dynamic, strict=True):
        assert len(one) == len(other)
        assert None not in one
        assert other.count(None) >= 1
