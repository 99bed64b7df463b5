"""The code in `report.html` has the names of the bundle; that for Python runs."""

import numpy as np
import onnx
import pytest
from hand_made import bundle_of, manifest_of, spec

from keras_transformer.export.bundle.manifest import read_manifest
from keras_transformer.export.reporting.load_code import load_code


def described(inputs, signatures=("serve",), **files):
    outputs = [spec("logits", "float32", "batch", 3)]
    record = {name: {"inputs": inputs, "outputs": outputs} for name in signatures}
    artifacts = {
        format: {"signatures": dict.fromkeys(signatures, file), "bytes": 512} for format, file in files.items()
    }
    return {"signatures": record, "artifacts": artifacts, "axis_limits": {"length": 8}}


TEXT = [spec("token_ids", "int32", "batch", "length"), spec("padding_mask", "bool", "batch", "length")]


def test_the_code_for_python_runs(tmp_path, capsys):
    x, y = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2, 3]) for name in "xy")
    graph = onnx.helper.make_graph([onnx.helper.make_node("Cos", ["x"], ["y"])], "cosine", [x], [y])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)
    bundle = bundle_of(
        tmp_path / "a bundle", "onnx", model.SerializeToString(), {"x": ("float32", (2, 3))}, {"y": ("float32", (2, 3))}
    )
    exec(load_code(read_manifest(bundle), str(bundle))["Python"], {})
    assert capsys.readouterr().out == f"{np.ones((2, 3), 'float32')}\n"


def test_axes_have_sizes_that_the_model_takes():
    code = load_code(manifest_of(described(TEXT, onnx="model.onnx")), "bundle")
    assert "length = 8\n" in code["Python"]
    assert '"token_ids": np.zeros((1, length), "int32"), "padding_mask": np.ones((1, length), "bool")' in code["Python"]
    assert "const length = 8;" in code["JavaScript"]
    assert 'new ort.Tensor("bool", new Uint8Array(length).fill(1), [1, length])' in code["JavaScript"]
    assert "IntBuffer.wrap(IntArray(length)), longArrayOf(1, length.toLong())" in code["Kotlin"]


def test_sizes_of_images_are_those_of_an_example():
    code = load_code(
        manifest_of(described([spec("images", "float32", "batch", "height", "width", 3)], onnx="model.onnx")), "bundle"
    )
    assert "model(model.example())" in code["Python"]


def test_names_of_the_file_are_used_where_they_differ():
    record = described([spec("x", "float32", "batch", 4)], onnx="model.onnx")
    record["artifacts"]["onnx"]["names"] = {"serve": {"inputs": {"x": "x:0"}, "outputs": {"logits": "logits_output"}}}
    code = load_code(manifest_of(record), "bundle")
    assert 'session.run({ "x:0": x })' in code["JavaScript"]
    assert 'outputs["logits_output"]' in code["JavaScript"]
    assert 'mapOf("x:0" to x)' in code["Kotlin"]
    assert 'model({"x": ' in code["Python"]


def test_litert_gets_a_signature_of_fixed_shapes():
    record = described([spec("x", "float32", "batch", 4)], ("serve", "serve_1"), tflite="model.tflite")
    record["signatures"]["serve_1"] = {"inputs": [spec("x", "float32", 1, 4)], "outputs": [spec("y", "float32", 1, 3)]}
    code = load_code(manifest_of(record), "bundle")
    assert 'model.createInputBuffer("x", "serve_1")' in code["Kotlin"]
    assert "x.writeFloat(FloatArray(4))" in code["Kotlin"]
    assert 'model.createOutputBuffer("y", "serve_1")' in code["Kotlin"]
    assert 'load("bundle")' in code["Python"]
    assert "JavaScript" not in code


def test_names_are_literals_and_identifiers():
    record = described([spec('a"$x', "float32", "batch", 4), spec("in", "float32", 2)], onnx='m".onnx')
    code = load_code(manifest_of(record), "bundle")
    assert '"a\\"\\$x" to a__x, "in" to in_' in code["Kotlin"]
    assert '"a\\"$x": a__x' in code["JavaScript"]
    compile(code["Python"], "report", "exec")


@pytest.mark.parametrize("files, languages", [(["tflite"], ["Python"]), (["onnx"], ["Python", "JavaScript"])])
def test_dtypes_that_a_language_lacks_leave_it_out(files, languages):
    """Kotlin has no tensors of int8 here, and LiteRT takes fixed shapes."""
    record = described([spec("x", "int8", "batch", 4)], **dict.fromkeys(files, "model"))
    assert list(load_code(manifest_of(record), "bundle")) == languages


def test_language_models():
    record = described(TEXT, ("prefill", "decode"), onnx="model.onnx")
    record["generation"] = {"is_encoder_decoder": False, "source_shape": None}
    code = load_code(manifest_of(record), "lm")
    assert "model.generate([5, 6, 7], max_new_tokens=40)" in code["Python"]
    assert "OnnxDecoder(bundle)" in code["Kotlin"]
    assert "OnnxDecoder.open(bundle, open, Tensor)" in code["JavaScript"]
    record["tokenizer"] = {"path": "tokenizer", "fingerprint": "", "options": {}}
    assert 'model.generate("A text", max_new_tokens=40)' in load_code(manifest_of(record), "lm")["Python"]
    record["generation"]["is_encoder_decoder"] = True
    assert list(load_code(manifest_of(record), "lm")) == ["Python"]


def test_language_models_of_other_sources_take_arrays():
    record = described(TEXT, ("prefill", "decode"), onnx="model.onnx")
    record["generation"] = {"is_encoder_decoder": True, "source_shape": [None, 80]}
    code = load_code(manifest_of(record), "speech")
    assert list(code) == ["Python"]
    assert 'np.zeros((100, 80,), "float32")' in code["Python"]
    compile(code["Python"], "report", "exec")


def test_kotlin_reads_prompts_of_any_length_with_litert():
    """`LiteRtDecoder` asks the signature prefill for the cache: bundles of fixed shapes only have none."""
    record = described(TEXT, ("prefill_32", "decode_1"), tflite="model.tflite")
    record["generation"] = {"is_encoder_decoder": False, "source_shape": None}
    assert list(load_code(manifest_of(record), "lm")) == ["Python"]
    record = described(TEXT, ("prefill", "decode", "prefill_32", "decode_1"), tflite="model.tflite")
    record["generation"] = {"is_encoder_decoder": False, "source_shape": None}
    assert "LiteRtDecoder(bundle)" in load_code(manifest_of(record), "lm")["Kotlin"]
