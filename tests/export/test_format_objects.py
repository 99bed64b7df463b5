"""Format objects: each entry of the dict is written, verified, quantized, loaded, inspected and reported."""

import collections
import subprocess
import sys

import keras
import numpy as np
import pytest

from keras_transformer.export import Evaluation, ExportOptions, ParityError, export, load, verify_bundle
from keras_transformer.export.errors import MissingLibraryError
from keras_transformer.export.format import Format
from keras_transformer.export.formats import FORMATS, check_formats, formats_with
from keras_transformer.export.reporting.inspection import inspect_bundle
from keras_transformer.export.runtime.libraries import Library

X = np.random.default_rng(0).normal(size=(3, 4)).astype("float32")


class MatrixFormat(Format):
    """A linear layer as a kernel and a bias."""

    name = "matrix"
    library = Library("numpy", "numpy")
    writers = ("pytest",)
    error = 0.0

    def write(self, traced, spec, directory):
        kernel, bias = (np.asarray(variable) for variable in spec.variables)
        np.savez(directory / "matrix.npz", kernel=kernel + self.error, bias=bias)
        return dict.fromkeys(spec.names(self.name), "matrix.npz")

    def quantize(self, spec, directory, files):
        for path in set(files.values()):
            with np.load(directory / path) as file:
                arrays = {name: file[name].astype("float16") for name in file}
            np.savez(directory / path, **arrays)

    def open(self, directory, manifest, signature, num_threads):
        with np.load(manifest.path(directory, self.name, signature)) as file:
            kernel, bias = file["kernel"].astype("float32"), file["bias"].astype("float32")
        return lambda arrays: {"output": arrays["x"] @ kernel + bias}

    def count_operations(self, path):
        return collections.Counter(MatrixProduct=1)

    def inspect(self, path):
        return [f"{path.name}: one matrix"]


class TurnedFormat(MatrixFormat):
    """The kernel of a matrix format's file, turned."""

    name = "turned"
    made_from = "matrix"

    def convert(self, sources, spec, directory):
        for path in set(sources.values()):
            with np.load(directory / path) as file:
                np.savez(directory / f"turned_{path}", kernel=file["kernel"].T, bias=file["bias"])
        return {key: f"turned_{path}" for key, path in sources.items()}

    def open(self, directory, manifest, signature, num_threads):
        with np.load(manifest.path(directory, self.name, signature)) as file:
            kernel, bias = file["kernel"].T, file["bias"]
        return lambda arrays: {"output": arrays["x"] @ kernel + bias}


@pytest.fixture
def matrix(monkeypatch):
    format = MatrixFormat()
    monkeypatch.setitem(FORMATS, format.name, format)
    return format


def linear():
    keras.utils.set_random_seed(0)
    return keras.Sequential([keras.Input((4,), name="x"), keras.layers.Dense(2)])


def test_a_fourth_format_goes_through_everything(matrix, tmp_path):
    model = linear()
    report = export(model, tmp_path / "bundle", formats=["matrix"])
    assert report["matrix"].ratio < 1e-5
    np.testing.assert_allclose(load(tmp_path / "bundle", "matrix")(X)["output"], model(X), atol=1e-6)
    assert list(verify_bundle(tmp_path / "bundle").artifacts) == ["matrix"]
    text = inspect_bundle(tmp_path / "bundle")
    assert "matrix.npz: one matrix" in text
    assert "pytest" in text
    assert "MatrixProduct" in (tmp_path / "bundle" / "report.html").read_text()


def test_a_fourth_format_is_quantized_and_evaluated(matrix, tmp_path):
    options = ExportOptions(evaluation=Evaluation([X]))
    report = export(linear(), tmp_path / "bundle", formats="matrix", quantize="fp16", options=options)
    assert report["matrix"].size < report["matrix"].float_size
    assert report["matrix"].evaluation["agreement"] == 1.0


def test_a_format_that_is_made_from_another_one(matrix, monkeypatch, tmp_path):
    monkeypatch.setitem(FORMATS, "turned", TurnedFormat())
    model = linear()
    report = export(model, tmp_path / "bundle", formats=["turned"])
    assert list(report.artifacts) == ["matrix", "turned"]
    assert report["turned"].ratio < 1e-5
    np.testing.assert_allclose(load(tmp_path / "bundle", "turned")(X)["output"], model(X), atol=1e-6)
    assert list(export(model, tmp_path / "all").artifacts) == ["saved_model", "tflite", "onnx"]


def test_the_quantized_files_are_made_from_the_quantized_ones(matrix, monkeypatch, tmp_path):
    monkeypatch.setitem(FORMATS, "turned", TurnedFormat())
    export(linear(), tmp_path / "bundle", formats=["turned"], quantize="fp16")
    with (
        np.load(tmp_path / "bundle" / "matrix.npz") as source,
        np.load(tmp_path / "bundle" / "turned_matrix.npz") as made,
    ):
        assert made["kernel"].dtype == "float16"
        np.testing.assert_array_equal(made["kernel"], source["kernel"].T)
    with pytest.raises(TypeError, match="turned is made from matrix"):
        Format.quantize(FORMATS["turned"], None, tmp_path, {})


def test_a_runtime_that_is_missing_is_an_error_before_work(matrix, monkeypatch, tmp_path):
    monkeypatch.setattr(matrix, "library", Library("no_such_runtime", "no-such-runtime"))
    monkeypatch.setattr(matrix, "write", None)
    with pytest.raises(MissingLibraryError, match="format 'matrix' needs no-such-runtime: pip install no-such-runtime"):
        export(linear(), tmp_path / "bundle", formats=["matrix"])


def test_a_fourth_format_that_computes_something_else_is_refused(matrix, tmp_path):
    matrix.error = 1e-2
    with pytest.raises(ParityError, match="matrix: output 'output' differs"):
        export(linear(), tmp_path / "bundle", formats=["matrix"])
    assert list(tmp_path.iterdir()) == []


def test_formats_and_the_runtime_load_no_converter():
    script = (
        "import sys; from keras_transformer.export import load; from keras_transformer.export.formats import FORMATS;"
        "print([name for name in ('tensorflow', 'keras', 'onnx', 'onnxruntime', 'tf2onnx') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_the_formats_of_a_list_come_in_their_order():
    assert all(name == each.name for name, each in FORMATS.items())
    assert check_formats(["onnx", "saved_model", "onnx"]) == ["saved_model", "onnx"]
    assert formats_with("takes_text") == ("saved_model",)
