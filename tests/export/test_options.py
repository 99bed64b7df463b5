"""`ExportOptions`: what they refuse, how they print, their file, and the calls of before."""

import pathlib

import keras
import numpy as np
import pytest

from keras_transformer.export import (
    Evaluation,
    ExportError,
    ExportOptions,
    Float16,
    GenerationOptions,
    Gguf,
    Int8,
    Int8Static,
    Learned,
    OnnxOptions,
    OptionsError,
    Quantization,
    QuantizationError,
    UnknownTargetError,
    WeightInt4,
    export,
    load,
)
from keras_transformer.export.commands import main as cli
from keras_transformer.export.data.report import Artifact, Report, Reports
from keras_transformer.quantization import QuantizedWeights

X = np.ones((2, 4), "float32")


def dense():
    return keras.Sequential([keras.Input((4,), name="x"), keras.layers.Dense(2)])


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"tolerance": "small"}, ExportError, "tolerance must be a positive number. Received: 'small'"),
        ({"tolerance": float("inf")}, ExportError, "tolerance must be a positive number"),
        ({"metadata": [1]}, ExportError, "metadata must be a dict.*list"),
        ({"evaluation": X}, QuantizationError, "evaluation must be an Evaluation.*ndarray"),
        ({"static": 3}, OptionsError, "static must be a dict of axis name to size, or a list of such dicts.*3"),
        ({"static": "batch=1"}, OptionsError, "static must be a dict"),
        ({"onnx": 18}, OptionsError, "onnx must be OnnxOptions. Received: 18"),
        ({"tokenizer_options": {"begin": True}}, ExportError, "tokenizer_options takes start, end, max_length"),
        ({"target": "qnnn"}, UnknownTargetError, "unknown target 'qnnn'.*did you mean 'qnn'"),
    ],
)
def test_refuses_when_made(options, error, message):
    with pytest.raises(error, match=message):
        ExportOptions(**options)


def test_prints_what_differs_from_the_defaults():
    assert repr(ExportOptions()) == "ExportOptions()"
    assert repr(ExportOptions(static={"batch": 1}, target="qnn")) == "ExportOptions(static={'batch': 1}, target='qnn')"
    assert repr(ExportOptions(evaluation=Evaluation([np.ones((9, 9))]))) == "ExportOptions(evaluation=...)"
    assert repr(Int8Static([{"x": X}], ranges="minmax")) == "Int8Static(calibration=..., ranges='minmax')"
    assert repr(Int8(tolerance=0.3)) == "Int8()"
    assert repr(Int8(tolerance=0.1)) == "Int8(tolerance=0.1)"


class TestFile:
    def written(self, tmp_path, text):
        path = tmp_path / "export.toml"
        path.write_text(text)
        return path

    def test_every_option_but_the_data(self, tmp_path):
        text = """
            static = [{batch = 1}, {batch = 4}]
            tolerance = 1e-4
            target = "qnn"
            tokenizer_options = {start = true}
            metadata = {description = "Two numbers"}
            [onnx]
            opset = 18
            [generation]
            prefill_buckets = [16]
            [dynamic_axes.x]
            0 = "rows"
        """
        assert ExportOptions.from_file(self.written(tmp_path, text)) == ExportOptions(
            static=[{"batch": 1}, {"batch": 4}],
            tolerance=1e-4,
            target="qnn",
            tokenizer_options={"start": True},
            metadata={"description": "Two numbers"},
            onnx=OnnxOptions(opset=18),
            generation=GenerationOptions(prefill_buckets=(16,)),
            dynamic_axes={"x": {0: "rows"}},
        )

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("tolerence = 1.0", "no option 'tolerence'; valid: dynamic_axes, .*; did you mean 'tolerance'"),
            ("evaluation = 1", "no option 'evaluation'"),
            (
                "[onnx]\nopsets = 18",
                r"\[onnx\] has no option 'opsets'; valid: opset, contrib_ops, cached_attention, optimize",
            ),
            ("onnx = 18", r"\[onnx\] must be a table. Received: 18"),
            ("[generation]\nbuckets = 18", r"\[generation\] has no option 'buckets'"),
            ("[dynamic_axes]\nx = 3", r"\[dynamic_axes\] takes tables by input"),
            ("static = ", "is not a TOML file"),
        ],
    )
    def test_errors_name_the_key(self, tmp_path, text, message):
        with pytest.raises(OptionsError, match=message):
            ExportOptions.from_file(self.written(tmp_path, text))

    def test_a_missing_file(self, tmp_path):
        with pytest.raises(OptionsError, match="no such file: .*none.toml"):
            ExportOptions.from_file(tmp_path / "none.toml")

    def test_the_command_takes_it(self, tmp_path, capsys):
        path = self.written(tmp_path, 'static = {batch = 3}\nmetadata = {description = "Two numbers"}')
        dense().save(tmp_path / "model.keras")
        words = ["export", str(tmp_path / "model.keras"), "--out", str(tmp_path / "bundle"), "--formats", "tflite"]
        assert cli.main([*words, "--config", str(path), "--static", "batch=2"]) == 0
        assert load(tmp_path / "bundle", "tflite").metadata == {"description": "Two numbers"}
        assert load(tmp_path / "bundle", "tflite", "serve_2")(x=X)
        assert cli.main([*words, "--config", str(self.written(tmp_path, "statics = 1"))]) == 1
        assert "has no option 'statics'" in capsys.readouterr().err


class TestCallsOfBefore:
    def test_arguments_of_export_are_those_of_its_options(self, tmp_path):
        call = (
            r"static=, metadata= of export is deprecated and goes in version 2.0: write export\(model, .*, \['tflite'\], "
            r"progress=False, options=ExportOptions\(static=\{'batch': 2\}, metadata=\{'a': 1\}\)\)$"
        )
        with pytest.warns(DeprecationWarning, match=call) as caught:
            export(dense(), tmp_path / "bundle", ["tflite"], static={"batch": 2}, metadata={"a": 1}, progress=False)
        assert pathlib.Path(caught[0].filename) == pathlib.Path(__file__)
        assert load(tmp_path / "bundle", "tflite").metadata == {"a": 1}
        assert load(tmp_path / "bundle", "tflite", "serve_2")(x=X)

    def test_they_do_not_mix_with_options(self, tmp_path):
        with pytest.raises(
            ExportError, match=r"tolerance of export and options.*options=ExportOptions\(tolerance=0.1\)"
        ):
            export(dense(), tmp_path / "bundle", tolerance=0.1, options=ExportOptions())

    @pytest.mark.parametrize(
        ("mode", "options", "wanted"),
        [
            ("fp16", {}, Float16()),
            ("int8", {"keep_float": "*/head/*"}, Int8(keep_float=("*/head/*",))),
            ("weight_int4", {"block_size": 64, "tolerance": 0.5}, WeightInt4(64, tolerance=0.5)),
            ("gguf", {"file": "model.gguf"}, Gguf("model.gguf")),
            ("learned", {"file": "weights.safetensors"}, Learned("weights.safetensors")),
        ],
    )
    def test_a_mode_by_name_is_an_instance_of_its_class(self, mode, options, wanted):
        with pytest.warns(DeprecationWarning, match="is deprecated and goes in version 2.0: write ") as caught:
            made = Quantization(mode, **options)
        assert (made, type(made)) == (wanted, type(wanted))
        assert str(caught[0].message).endswith(repr(wanted))
        assert pathlib.Path(caught[0].filename) == pathlib.Path(__file__)

    def test_data_is_passed_on(self):
        calibration, weights = [{"x": X}], QuantizedWeights({})
        with pytest.warns(DeprecationWarning, match=r"write Int8Static\(calibration=..., activation_bits=16\)"):
            made = Quantization("int8_static", calibration, activation_bits=16)
        assert made.calibration is calibration
        with pytest.warns(DeprecationWarning, match=r"Learned\(source="):
            assert Quantization("learned", weights=weights).source is weights

    @pytest.mark.parametrize(
        ("mode", "options", "error", "message"),
        [
            ("int7", {}, QuantizationError, "unknown quantization 'int7'"),
            ("int8", {"file": "a"}, QuantizationError, "file is for the modes 'gguf' and 'learned', not 'int8'"),
            ("int8", {"weights": QuantizedWeights({})}, QuantizationError, "weights are for the mode 'learned'"),
            ("int8", {"activation_bits": 16}, QuantizationError, "activation_bits must be 8, or 16 in 'int8_static'"),
            ("int8", {"bits": 16}, TypeError, "Quantization takes mode, calibration, .* Received: bits"),
        ],
    )
    def test_errors_stay(self, mode, options, error, message):
        with pytest.raises(error, match=message):
            Quantization(mode, **options)


def test_options_and_reports_are_shown_in_notebooks():
    shown = ExportOptions(static={"batch": 1}, tolerance=1e-5)._repr_html_()
    assert "<td>static</td><td>{&#x27;batch&#x27;: 1}</td>" in shown
    assert "by default: inputs, signatures" in shown
    report = Report("/tmp/bundle", {"onnx": Artifact("onnx", "/tmp/bundle/model.onnx", 3_400_000, 1.0, [], 12)}, 1e-5)
    assert repr(report).splitlines()[-1] == "proven in one runtime: onnx"
    assert "<td>3.4 MB</td>" in report._repr_html_()
    assert "<b>1 bundles" in Reports(int8=report)._repr_html_()
