"""Targets: errors before work, results as text and as dicts, and what is said where nothing was run."""

import dataclasses
import json
import pathlib

import keras
import numpy as np
import pytest

from keras_transformer.export import ExportOptions, FullInt8, ParityError, TargetError, UnknownTargetError, export
from keras_transformer.export.commands.main import main
from keras_transformer.export.data.artifact_record import ArtifactRecord
from keras_transformer.export.data.export_spec import ExportSpec, Probe, Signature
from keras_transformer.export.data.manifest import Manifest
from keras_transformer.export.data.target_result import Fallback, SignatureResult, TargetResult
from keras_transformer.export.runtime.libraries import Library
from keras_transformer.export.targets import TARGETS, get_target, proof
from keras_transformer.export.targets.fixed_shapes import check_precisions, fixed_spec, with_defaults
from keras_transformer.export.targets.litert_gpu import refused
from keras_transformer.export.targets.target import Node, Target


def tagger():
    inputs = keras.Input((None,), dtype="int32", name="token_ids")
    return keras.Model(inputs, keras.layers.Embedding(10, 4)(inputs))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"target": "litert-gpuu"},
            UnknownTargetError,
            "unknown target 'litert-gpuu'; valid: .*did you mean 'litert-gpu'",
        ),
        (
            {"target": "litert-gpu"},
            TargetError,
            r"'length' is not given; pass options=ExportOptions\(static=\{\"batch\": 1, \"length\": 128\}, target='litert",
        ),
        ({"target": "qnn", "static": [{"length": 4}, {"batch": 2}]}, TargetError, "the size of 'length' is not given"),
        ({"target": "qnn", "formats": ["tflite"]}, TargetError, "it runs onnx files, not tflite; leave `formats` out"),
        ({"target": "xnnpack", "formats": ["tflite", "onnx"]}, TargetError, "it runs tflite files, not tflite, onnx"),
        (
            {"target": "litert-gpu", "quantize": "weight_int4", "static": {"length": 4}},
            TargetError,
            "does not run quantize='weight_int4'; it runs 'float32', 'fp16'",
        ),
    ],
)
def test_errors_come_before_work(tmp_path, options, error, message):
    given = {name: options.pop(name) for name in ("formats", "quantize") if name in options}
    with pytest.raises(error, match=message):
        export(tagger(), tmp_path / "bundle", progress=False, options=ExportOptions(**options), **given)
    assert list(tmp_path.iterdir()) == []


def test_the_command_names_the_targets(tmp_path, capsys):
    (tmp_path / "model.keras").touch()
    words = ["export", str(tmp_path / "model.keras"), "--out", str(tmp_path / "out"), "--target", "npu"]
    assert main(words) == 1
    assert f"unknown target 'npu'; valid: {', '.join(TARGETS)}" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["xnnpack", "qnn", "openvino"])
def test_targets_of_integers_take_integers_throughout(name):
    integers = FullInt8([{"x": [[1.0]]}])
    check_precisions(get_target(name), [integers])
    with pytest.raises(TargetError, match="does not run quantize='full_int8'; it runs 'float32', 'fp16'"):
        check_precisions(get_target("litert-gpu"), [integers])


def test_sizes_have_a_batch_of_1_by_default():
    target = get_target("litert-gpu")
    assert with_defaults(target, ["batch", "length"], [{"length": 4}, {"batch": 3, "length": 2}]) == [
        {"batch": 1, "length": 4},
        {"batch": 3, "length": 2},
    ]
    assert with_defaults(target, ["batch"], None) == [{"batch": 1}]


def test_the_signatures_of_fixed_shapes_have_the_names_of_the_general_ones():
    from keras_transformer.export.spec.functional import functional_spec

    found = fixed_spec(functional_spec(tagger()), get_target("qnn"), [{"length": 4}, {"length": 6}])
    shapes = {name: each.inputs[0].shape for name, each in found.signatures.items()}
    assert shapes == {"serve": (1, 4), "serve_1x6": (1, 6)}
    assert {each.formats for each in found.signatures.values()} == {("onnx",)}
    assert found.target.name == "qnn"


RESULT = TargetResult(
    "litert-gpu",
    (
        SignatureResult("prefill_8", 10, 8, 2e-6, (Fallback("CUMSUM", "integers", "sum floats", 2, ("a", "b")),)),
        SignatureResult("decode_1", 5, 5, 1e-7),
    ),
    "ai-edge-litert 2.3.0",
)


def test_a_result_as_text_and_as_a_dict():
    assert str(RESULT).splitlines() == [
        "litert-gpu: 8 of 10 nodes of 'prefill_8' taken, 2.0e-06 of the scale from the CPU (run by ai-edge-litert 2.3.0)",
        "  2 CUMSUM of 'a', 'b': integers; sum floats",
        "litert-gpu: 5 of 5 nodes of 'decode_1' taken, 1.0e-07 of the scale from the CPU (run by ai-edge-litert 2.3.0)",
    ]
    assert TargetResult.from_dict(json.loads(json.dumps(RESULT.to_dict()))) == RESULT
    assert (RESULT.is_proven, RESULT.is_whole, RESULT.difference) == (True, False, 2e-6)
    assert TargetResult("qnn", RESULT.signatures[1:], "x").is_whole


def test_a_result_that_was_not_run_claims_nothing():
    found = TargetResult("qnn", (SignatureResult("serve", 7),), None, "onnxruntime-qnn is not installed")
    expected = (
        "qnn: 'serve', 7 nodes, NOT RUN (onnxruntime-qnn is not installed); by the static rules nothing falls back"
    )
    assert str(found) == expected
    assert (found.is_proven, found.is_whole, found.difference) == (False, False, None)


def test_the_reasons_of_the_gpu_delegate_are_read_from_its_log():
    log = (
        "INFO: x\nERROR: Following operations are not supported by GPU delegate:\n"
        "GATHER: Only support 1D indices\nSTRIDED_SLICE: Max version supported: 2. Requested version 3. \n"
        "89 operations will run on the GPU, and the remaining 3 operations will run on the CPU.\n"
    )
    assert refused(log) == {
        "GATHER": "Only support 1D indices",
        "STRIDED_SLICE": "Max version supported: 2. Requested version 3",
    }


class Fake(Target):
    """A target whose rules refuse one node of three."""

    name, format = "fake", "onnx"
    tolerance = {None: 1e-3}

    def nodes(self, path, signature):
        return 3

    def check(self, path, signature):
        return [Node("Loop", "block_1/loop", "operation not supported", "use a mechanism without a loop")]


@pytest.fixture
def spec():
    probe = Probe({"x": np.ones(2, "float32")}, "2", {"y": np.array([1.0, -4.0], "float32")})
    signature = Signature(lambda tensors: tensors, (), [probe])
    return ExportSpec({"serve": signature}, locate=lambda op, node: node.split("/")[0])


MANIFEST = Manifest(
    {}, {"onnx": ArtifactRecord({"serve": "model.onnx"}, size=1)}, tolerance=1e-5, versions={}, files={}
)


def proven(spec, monkeypatch, worked=None, outputs=None, **attributes):
    def work(folder):
        np.savez(folder / "outputs.npz", **(outputs or {}))
        return worked

    monkeypatch.setattr(proof, "_worked", work)
    target = type("Given", (Fake,), attributes)()
    return proof.prove(target, pathlib.Path("bundle"), MANIFEST, spec)


def test_without_the_library_the_rules_speak(spec, monkeypatch):
    found = proven(spec, monkeypatch, libraries=(Library("no_such_library", "no-such-library"),))
    assert (found.simulator, found.reason) == (None, "no-such-library is not installed")
    fallback = Fallback("Loop", "operation not supported", "use a mechanism without a loop", 1, ("block_1",))
    assert found.signatures == (SignatureResult("serve", 3, fallbacks=(fallback,)),)


def test_without_a_device_nothing_is_claimed(spec, monkeypatch):
    assert proven(spec, monkeypatch, {"missing": "no GPU"}).reason == "no GPU"
    assert not proven(spec, monkeypatch, {"error": "the simulator ended with status -11"}).is_proven


def worked(taken, **refused_nodes):
    found = {"nodes": 3, "taken": taken, "refused": refused_nodes, "left": [], "figures": {}}
    return {"signatures": {"serve": found}}


def test_the_accelerator_has_the_last_word(spec, monkeypatch):
    outputs = {"serve/0/y": np.array([1.0, -4.002], "float32")}
    (whole,) = proven(spec, monkeypatch, worked(3), outputs).signatures
    assert (whole.taken, whole.fallbacks) == (3, ())
    assert whole.difference == pytest.approx(0.002 / 4, rel=1e-3)
    (part,) = proven(spec, monkeypatch, worked(1, Loop="too deep", Det="no"), outputs).signatures
    assert [(each.op, each.reason, each.layers) for each in part.fallbacks] == [
        ("Loop", "too deep", ("block_1",)),
        ("Det", "no", ()),
    ]


@pytest.mark.parametrize("wrong", [[1.0, -4.1], [1.0, np.nan], [[1.0, -4.0]]])
def test_wrong_values_on_the_accelerator_are_an_error(spec, monkeypatch, wrong):
    with pytest.raises(ParityError, match="fake: output 'y'"):
        proven(spec, monkeypatch, worked(3), {"serve/0/y": np.array(wrong, "float32")})


def test_a_larger_tolerance_of_the_export_counts(spec, monkeypatch):
    outputs = {"serve/0/y": np.array([1.0, -4.1], "float32")}
    found = proven(dataclasses.replace(spec, tolerance=0.05), monkeypatch, worked(3), outputs)
    assert found.difference == pytest.approx(0.025, rel=1e-3)


def test_a_target_that_stands_alone_runs_a_file_or_refuses_it(spec, monkeypatch):
    named = "it does not run 1 Loop of 'block_1': operation not supported; use a mechanism without a loop"
    with pytest.raises(TargetError, match=named):
        proven(spec, monkeypatch, stands_alone=True)
    checked = {"stands_alone": True, "check": lambda self, path, signature: []}
    with pytest.raises(TargetError, match="it does not run the file: the simulator ended with status -11"):
        proven(spec, monkeypatch, {"error": "the simulator ended with status -11"}, **checked)
    with pytest.raises(TargetError, match="it does not run 1 Det of 'block_2': no kernel"):
        proven(spec, monkeypatch, {"node": ["Det", "block_2/det", "no kernel", ""]}, **checked)


def test_less_than_the_least_share_is_refused(spec, monkeypatch):
    outputs = {"serve/0/y": np.array([1.0, -4.0], "float32")}
    assert proven(spec, monkeypatch, worked(2), outputs, least_share=0.6).signatures[0].taken == 2
    with pytest.raises(TargetError, match=r"it runs 2 of 3 nodes, less than least_share=0.7: 1 Loop of 'block_1'"):
        proven(spec, monkeypatch, worked(2), outputs, least_share=0.7)
