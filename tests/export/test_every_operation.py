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


@pytest.fixture
def page(monkeypatch):
    monkeypatch.syspath_prepend(pathlib.Path(__file__).parents[2] / "benchmarks")
    return importlib.import_module("every_operation")


def test_what_keras_does_not_compute_is_no_matter_of_the_formats(page):
    found = {}
    for format in page.FORMATS:
        found["sort", "float32", "fixed", format] = "refused: why" if format == "onnx" else page.PROVEN
        found["sort", "bool", "dynamic", format] = found["isin", "", "fixed", format] = "Keras: no bool"
        found["abs", "", "fixed", format] = page.PROVEN
    table = page.rows(found)
    assert table["sort"] == {
        "saved_model": "proven",
        "tflite": "proven",
        "onnx": "float32 fixed: refused: why",
        "Keras": "bool dynamic: no bool",
    }
    assert set(table["abs"].values()) == {"proven", ""}
    assert table["isin"]["onnx"] == page.NOTHING
    assert page.counts(table) == (1, 2)


def test_an_error_is_told_without_what_a_layer_puts_around_it(page):
    error = ValueError(
        "Exception encountered when calling Call.call().\n\n\x1b[1mCould not automatically infer the output. "
        "Error encountered:\n\na | b\x1b[0m\n\nArguments received by Call.call():\n  • args"
    )
    assert page._line(error) == "a / b"
    assert page._line(ValueError("Exception encountered when calling Call.call().\n\nx is y")) == "x is y"


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
