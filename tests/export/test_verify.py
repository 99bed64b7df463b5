"""The comparison of artifacts: hand-computed figures, and every kind of difference."""

import json
import math
import pathlib
import shutil

import numpy as np
import onnx
import pytest
from hand_made import bundle_of, write_record

from keras_transformer.export import InvalidBundleError, ParityError, Probe, verify_bundle
from keras_transformer.export.bundle.probe_files import read_probes, write_probes
from keras_transformer.export.data.parity import Parity
from keras_transformer.export.data.report import Artifact, Report, readable_size
from keras_transformer.export.verification import running
from keras_transformer.export.verification.comparison import Limit
from keras_transformer.export.verification.outputs import parities


def compare_outputs(got, expected, tolerance=1e-5):
    """Compares a model that returns `got` where Keras returns `expected`."""
    probe = Probe({"x": np.zeros(1)}, "batch=1", {name: np.asarray(value) for name, value in expected.items()})
    return list(parities(lambda inputs: got, "onnx", "serve", probe, Limit(tolerance)))


def floats(*values):
    return np.array(values, "float32")


def test_difference_is_judged_by_the_scale_of_the_output():
    (parity,) = compare_outputs({"y": floats(1, -200)}, {"y": floats(1.001, -200)})
    assert parity.ratio == pytest.approx(0.001 / 200, rel=1e-3)
    with pytest.raises(ParityError, match="output 'y'") as caught:
        compare_outputs({"y": floats(1, -2)}, {"y": floats(1.001, -2)})
    assert caught.value.difference == pytest.approx(0.001, rel=1e-3)
    assert caught.value.scale == 2


@pytest.mark.parametrize(
    "got, words",
    [
        ({"y": floats(1, math.nan)}, "output 'y'"),
        ({"y": floats(1, math.inf)}, "output 'y'"),
        ({"y": floats(1)}, r"\(1,\), Keras returns float32 \(2,\)"),
        ({"y": np.array([1.0, 2.0])}, "float64"),
        ({}, "is not the Keras model's"),
        ({"y": floats(1, 2), "z": floats(1)}, "is not the Keras model's"),
    ],
)
def test_wrong_outputs_are_refused(got, words):
    with pytest.raises(ParityError, match=words):
        compare_outputs(got, {"y": floats(1, 2)})


def test_whole_numbers_must_be_equal():
    assert compare_outputs({"y": np.array([10**6])}, {"y": np.array([10**6])})[0].difference == 0
    with pytest.raises(ParityError):
        compare_outputs({"y": np.array([10**6 + 1])}, {"y": np.array([10**6])})
    with pytest.raises(ParityError):
        compare_outputs({"y": np.array([True, False])}, {"y": np.array([True, True])})


def test_an_artifact_that_fails_to_run_is_refused():
    def broken(inputs):
        raise RuntimeError("kernel\nmissing")

    probe = Probe({}, "batch=1", {"y": floats(1)})
    with pytest.raises(ParityError, match="cannot be computed: kernel missing"):
        list(parities(broken, "tflite", "serve", probe, Limit(1e-5)))


def test_probes_are_kept_smallest_first_within_the_limit(tmp_path):
    def probe(size):
        return Probe({"x": np.full((size, 100), size, "float32")}, f"batch={size}", {"y": np.ones(size, bool)})

    write_probes(tmp_path, {"serve": [probe(5), probe(1), probe(3)], "step": [probe(9)]}, limit=1700)
    kept = read_probes(tmp_path)
    assert [each.label for each in kept["serve"]] == ["batch=1", "batch=3"]
    assert [each.label for each in kept["step"]] == ["batch=9"], "every signature keeps at least one"
    np.testing.assert_array_equal(kept["serve"][1].inputs["x"], np.full((3, 100), 3, "float32"))
    assert kept["serve"][1].outputs["y"].dtype == bool


@pytest.fixture
def copy(exported, tmp_path):
    return pathlib.Path(shutil.copytree(exported.bundle("mlp"), tmp_path / "copy"))


def test_a_sound_bundle_is_proven_again(copy):
    report = verify_bundle(copy)
    assert list(report.artifacts) == ["saved_model", "tflite", "onnx"]
    assert all(artifact.ratio <= 1e-5 for artifact in report.artifacts.values())
    assert list(verify_bundle(copy, ["onnx"]).artifacts) == ["onnx"]


def test_an_altered_file_is_found_by_its_hash(copy):
    content = bytearray((copy / "model.onnx").read_bytes())
    content[-40] ^= 1
    (copy / "model.onnx").write_bytes(content)
    with pytest.raises(InvalidBundleError, match=r"'model\.onnx' was altered"):
        verify_bundle(copy, ["onnx"])


def rewrite(directory, change, **fields):
    """Changes the probes of a bundle and fields of its manifest, which then fits its files."""
    from keras_transformer.export.bundle.manifest import read_manifest

    probes = read_probes(directory)
    change(probes["serve"])
    write_probes(directory, probes, limit=10**6)
    manifest = json.loads((directory / "manifest.json").read_text()) | fields
    write_record(directory, manifest)
    assert read_manifest(directory)


@pytest.mark.parametrize("number", [0, -1])
def test_a_difference_on_any_probe_is_found(copy, number):
    def change(probes):
        assert len(probes) > 1
        probes[number].outputs["probabilities"] *= np.float32(1 + 1e-4)

    rewrite(copy, change)
    with pytest.raises(ParityError, match="tflite: output 'probabilities' differs"):
        verify_bundle(copy, ["tflite"])


def test_a_bundle_does_not_state_what_it_is_held_to(copy):
    def change(probes):
        probes[0].outputs["probabilities"] *= np.float32(1 + 1e-2)
        for probe in probes:
            probe.rounding["probabilities"] = np.full_like(probe.rounding["probabilities"], 1e3)

    rewrite(copy, change, tolerance=1e3)
    with pytest.raises(ParityError, match="onnx: output 'probabilities' differs"):
        verify_bundle(copy, ["onnx"])
    assert verify_bundle(copy, ["onnx"], tolerance=0.1)["onnx"].ratio > 1e-3


def test_a_file_that_is_called_quantized_is_held_to_the_tolerance_of_the_caller(tmp_path):
    text = '<ir_version: 9, opset_import: ["" : 18]> g (float[N, 4] x) => (float[N, 4] y) { y = Add(x, x) }'
    specs = {"x": ("float32", (None, 4))}, {"y": ("float32", (None, 4))}
    bundle = bundle_of(tmp_path / "bundle", "onnx", onnx.parser.parse_model(text).SerializeToString(), *specs)
    x = np.linspace(1, 2, 8, dtype="float32").reshape(2, 4)
    write_probes(bundle, {"serve": [Probe({"x": x}, "probe", {"y": 2.1 * x})]}, limit=10**6)
    manifest = json.loads((bundle / "manifest.json").read_text())
    manifest["artifacts"]["onnx"]["quantization"] = "int8"
    write_record(bundle, manifest)
    assert 0.04 < verify_bundle(bundle)["onnx"].ratio < 0.05
    with pytest.raises(
        ParityError, match=r"output 'y' changes by 0\.0476 .* \(at \[1, 3\] it is 4, 4\.2 expected\); tolerance 0\.01"
    ):
        verify_bundle(bundle, tolerance=0.01)
    del manifest["artifacts"]["onnx"]["quantization"]
    write_record(bundle, manifest)
    with pytest.raises(ParityError, match="output 'y' differs"):
        verify_bundle(bundle)


def test_the_report_is_a_table_and_survives_a_round_trip():
    parity = [Parity("serve", "a", 1e-7, 0.5, 2e-7, 0.25), Parity("serve", "b", 3e-7, 10.0, 3e-8)]
    report = Report("/bundle", {"onnx": Artifact("onnx", "/bundle/model.onnx", 1234567, 1.26, parity, 5)}, 1e-5)
    lines = str(report).splitlines()
    titles = ["format", "size", "difference", "of", "scale", "of", "allowed", "probes", "seconds"]
    assert lines[1].split() == titles
    assert lines[2].split() == ["onnx", "1.2", "MB", "3.0e-07", "2.0e-07", "0.25", "5", "1.3"]
    assert len(lines[1]) == len(lines[2])
    assert Report.from_dict(report.to_dict()) == report
    assert [readable_size(size) for size in (12, 12_345, 12_345_678, 3.2e9)] == [
        "12 B",
        "12.3 kB",
        "12.3 MB",
        "3.2 GB",
    ]


def test_names_of_several_lines_in_a_runtimes_error_are_one(monkeypatch):
    """ONNX Runtime prints the names of a file, which may contain anything."""

    def fail(*arguments):
        raise RuntimeError('Load failed: In Node, ("while\n_loop",\r\n\tLoop)')

    monkeypatch.setattr(running, "open_artifact", fail)
    with pytest.raises(ParityError) as caught:
        running.opened(pathlib.Path(), {}, "onnx", "serve")
    assert 'cannot be loaded: Load failed: In Node, ("while _loop", Loop)' in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
