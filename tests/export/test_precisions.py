"""Several precisions from one conversion, progress, and what an interrupt leaves behind."""

import io
import json
import os
import signal
import subprocess
import sys

import keras
import numpy as np
import pytest

from keras_transformer.export import (
    ExportError,
    Int8,
    InvalidBundleError,
    ParityError,
    QuantizationError,
    WeightInt4,
    export,
    load,
    quantize,
    verify_bundle,
)
from keras_transformer.export.commands import main as cli
from keras_transformer.export.data.report import Reports
from keras_transformer.export.reporting import progress as progress_module
from keras_transformer.export.reporting.progress import Steps


def network():
    layers = [keras.Input((48,), name="x"), keras.layers.Dense(96, "relu"), keras.layers.Dense(64)]
    return keras.Sequential(layers, name="small")


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    """Folders `float32`, `int8` and `weight_int4` of one model, the lines of progress, and the reports."""
    folder, lines = tmp_path_factory.mktemp("precisions") / "bundles", []
    precisions = ["float32", "int8", WeightInt4(block_size=16)]
    reports = export(network(), folder, ["onnx"], quantize=precisions, progress=lines.append)
    return folder, lines, reports


def test_a_quantized_file_that_is_wrong_for_one_batch_is_refused(tmp_path, monkeypatch):
    from keras_transformer.export.onnx.runtime import OnnxRuntime

    own = OnnxRuntime.__call__
    seen = []

    def wrong_in_sevens(self, inputs):
        results, rows = own(self, inputs), len(inputs["x"])
        seen.append(rows)
        is_quantized = seen.count(7) > 1  # The float file has been compared.
        return {name: each[::-1] if rows == 7 and is_quantized else each for name, each in results.items()}

    monkeypatch.setattr(OnnxRuntime, "__call__", wrong_in_sevens)
    with pytest.raises(ParityError, match=r"changes by .* of its rows.* \(probe batch=7"):
        export(network(), tmp_path / "bundle", ["onnx"], quantize="int8", progress=False)


class TestSeveral:
    def test_each_is_a_bundle_that_verifies(self, several):
        folder, _, reports = several
        assert sorted(path.name for path in folder.iterdir()) == ["float32", "int8", "weight_int4"]
        assert list(reports) == ["float32", "int8", "weight_int4"]
        x = np.random.default_rng(0).normal(size=(5, 48)).astype("float32")
        wanted = load(folder / "float32")({"x": x})
        for name, most in (("float32", 0.0), ("int8", 0.03), ("weight_int4", 0.2)):
            verify_bundle(folder / name)
            (got,) = load(folder / name)({"x": x}).values()
            (expected,) = wanted.values()
            assert np.abs(got - expected).max() <= most * np.abs(expected).max()
            assert reports[name].directory == str(folder / name)
            assert reports[name]["onnx"].path.startswith(str(folder / name))
        sizes = [reports[name]["onnx"].size for name in reports]
        assert sizes[0] > sizes[1] > sizes[2]
        manifest = json.loads((folder / "weight_int4" / "manifest.json").read_text())
        assert manifest["artifacts"]["onnx"]["weights"]["rounded"] == 2

    def test_the_float_files_are_written_once(self, several):
        lines = [line for line in several[1] if line.startswith("[")]
        assert lines == [
            "[1/5] writing onnx",
            "[2/5] measuring the rounding of the model",
            "[3/5] verifying onnx",
            "[4/5] quantizing onnx to int8",
            "[5/5] quantizing onnx to weight_int4",
        ]

    def test_quantized_files_run_on_other_batches_too(self, several):
        reports = several[2]
        said = {name: next(line for line in each.domain if "batch" in line) for name, each in reports.items()}
        assert said["int8"] == said["weight_int4"]
        # Without the regions of values of which some batches of float files are.
        assert said["float32"].endswith("; batch 1, 2, 3, 4, 5, 7, 8, 16, 64")
        assert said["int8"].endswith("; batch 1, 3, 4, 5, 7, 8, 16, 64")
        assert reports["float32"]["onnx"].probes > reports["int8"]["onnx"].probes == 8

    def test_folders_of_precisions_are_replaced_and_nothing_else(self, several, tmp_path):
        bundle = several[0] / "float32"
        reports = quantize(bundle, tmp_path / "out", ["int8", "fp16"], progress=False)
        assert isinstance(reports, Reports)
        assert [line.split()[0] for line in str(reports).splitlines() if "onnx" in line] == ["onnx", "onnx:"] * 2
        quantize(bundle, tmp_path / "out", ["fp16"], progress=False)
        assert [path.name for path in (tmp_path / "out").iterdir()] == ["fp16"]
        with pytest.raises(InvalidBundleError, match="'fp16', which is not part of a bundle"):
            quantize(bundle, tmp_path / "out", "fp16", progress=False)
        (tmp_path / "out" / "fp16" / "notes.txt").write_text("mine")
        with pytest.raises(InvalidBundleError, match="'fp16', which is not part of a bundle"):
            quantize(bundle, tmp_path / "out", ["fp16"], progress=False)
        with pytest.raises(InvalidBundleError, match="contains it"):
            quantize(bundle, several[0], ["fp16"], progress=False)

    @pytest.mark.parametrize(
        ("precisions", "message"),
        [
            ([], "must name a precision: float32, fp16, int8"),
            (["int8", "int9"], "unknown quantization 'int9'"),
            (["int8", Int8(keep_float=("*",))], "has int8 twice"),
            (["float32", None], "has float32 twice"),
            (["int8", 8], "must be the name of a mode"),
        ],
    )
    def test_errors_come_before_any_work(self, several, tmp_path, precisions, message):
        with pytest.raises(QuantizationError, match=message):
            export(network(), tmp_path / "out", ["onnx"], quantize=precisions, progress=pytest.fail)
        with pytest.raises(QuantizationError, match=message):
            quantize(several[0] / "float32", tmp_path / "out", precisions, progress=pytest.fail)
        assert not (tmp_path / "out").exists()

    def test_one_that_fails_leaves_none(self, several, tmp_path):
        precisions = ["int8", WeightInt4(tolerance=1e-9)]
        with pytest.raises(ExportError, match="tolerance 1e-09"):
            quantize(several[0] / "float32", tmp_path / "out", precisions, progress=False)
        assert list(tmp_path.iterdir()) == []
        with pytest.raises(QuantizationError, match="mode must be one of"):
            quantize(several[0] / "float32", tmp_path / "out", ["float32", "int8"], progress=False)

    def test_the_command_line_takes_several(self, several, tmp_path, capfd):
        words = ["quantize", str(several[0] / "float32"), "--out", str(tmp_path / "out"), "--quantize", "int8, fp16"]
        assert cli.main(words) == 0
        out, err = capfd.readouterr()
        assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["fp16", "int8"]
        assert out.count("of float") == 2
        assert err.splitlines()[0] == "[1/2] quantizing onnx to int8"


class _Terminal(io.StringIO):
    def isatty(self):
        return True


class TestProgress:
    def test_a_terminal_has_a_bar_and_ends_clean(self, monkeypatch):
        terminal = _Terminal()
        monkeypatch.setattr(progress_module.sys, "stderr", terminal)
        with Steps(4, True) as steps:
            steps.begin("writing onnx")
            steps.begin("verifying onnx")
            steps.note("verified")
        drawn = terminal.getvalue().split("\r\x1b[K")
        assert drawn[1] == f"[{' ' * 24}] 1/4 writing onnx"
        assert drawn[2] == f"[{'=' * 6}{' ' * 18}] 2/4 verifying onnx"
        assert drawn[3] == "verified\n"
        assert drawn[-1] == ""

    def test_other_streams_have_lines(self, monkeypatch):
        stream = io.StringIO()
        monkeypatch.setattr(progress_module.sys, "stderr", stream)
        with Steps(1, True) as steps:
            steps.begin("writing onnx")
            steps.note("wrote it")
        assert stream.getvalue() == "[1/1] writing onnx\nwrote it\n"

    def test_it_is_on_by_default_on_stderr_only(self, several, tmp_path, capfd):
        quantize(several[0] / "float32", tmp_path / "one", "fp16")
        out, err = capfd.readouterr()
        assert out == ""
        assert err.splitlines()[0] == "[1/1] quantizing onnx to fp16"
        quantize(several[0] / "float32", tmp_path / "two", "fp16", progress=False)
        assert capfd.readouterr() == ("", "")


SCRIPT = """
import signal, sys
from keras_transformer.export import quantize
signal.signal(signal.SIGINT, signal.default_int_handler)  # Where the tests run in the background, it is ignored.
quantize(sys.argv[1], sys.argv[2], ["int8", "weight_int4", "fp16"])
"""


def test_an_interrupt_leaves_nothing_half_written(several, tmp_path):
    command = [sys.executable, "-c", SCRIPT, str(several[0] / "float32"), str(tmp_path / "out")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=dict(os.environ)) as process:
        while "to weight_int4" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
    assert process.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in rest
    assert list(tmp_path.iterdir()) == []
