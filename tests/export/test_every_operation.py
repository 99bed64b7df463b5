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


@pytest.mark.exhaustive
def test_a_cell_is_what_becomes_of_a_case(page):
    found = page.cells([("abs", "float32"), ("ctc_decode", "beam_search")])
    assert {key[2:]: cell for key, cell in found.items() if key[0] == "abs"} == {
        (kind, format): "proven" for kind in page.KINDS for format in page.FORMATS
    }
    assert found["ctc_decode", "beam_search", "fixed", "onnx"].startswith("UnsupportedOpError: onnx: op CTCBeam")


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
