"""Every format of every small model: parity, names and dynamic axes, on inputs other than the probes."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from keras_transformer.export import load

MODELS = (
    "mlp",
    "keras_int8",
    "encoder",
    "two_lengths",
    "cache_scatter",
    "any_image",
    "rolled",
    "indexing",
    "same_tensor",
    "whole_numbers",
    "masked_embedding",
    "image_transformer",
)
FORMATS = ("saved_model", "tflite", "onnx")
OPTIONAL = {"image_transformer": "keras_hub"}


def worst(result, format):
    return max(parity["ratio"] for parity in result["report"]["artifacts"][format]["parity"])


@pytest.fixture(params=MODELS)
def model_name(request):
    if request.param in OPTIONAL:
        pytest.importorskip(OPTIONAL[request.param])
    return request.param


@pytest.mark.parametrize("format", FORMATS)
def test_computes_what_keras_computes_at_sizes_never_probed(exported, model_name, format):
    directory = exported.bundle(model_name)
    with np.load(exported.directory / f"{model_name}.npz") as arrays:
        inputs = {key.split("/")[1]: arrays[key] for key in arrays.files if key.startswith("inputs/")}
        outputs = {key.split("/")[1]: arrays[key] for key in arrays.files if key.startswith("outputs/")}
    results = load(directory, format)(inputs)
    assert set(results) == set(outputs)
    for name, expected in outputs.items():
        assert results[name].dtype == expected.dtype
        assert results[name].shape == expected.shape
        if expected.dtype.kind == "f":
            assert np.max(np.abs(results[name] - expected)) <= 1e-5 * np.max(np.abs(expected))
        else:
            np.testing.assert_array_equal(results[name], expected)


@pytest.mark.parametrize("format", FORMATS)
def test_report_gives_the_parity_of_every_output(exported, model_name, format):
    result = exported[model_name]
    artifact = result["report"]["artifacts"][format]
    assert worst(result, format) <= 1e-5
    assert artifact["probes"] >= 2
    path = pathlib.Path(artifact["path"])
    files = [each for each in path.rglob("*") if each.is_file()] or [path]
    assert artifact["size"] == sum(each.stat().st_size for each in files) > 0
    manifest = json.loads((exported.bundle(model_name) / "manifest.json").read_text())
    assert {each["output"] for each in artifact["parity"]} == {
        each["name"] for each in manifest["signatures"]["serve"]["outputs"]
    }


@pytest.mark.parametrize("format", FORMATS)
def test_a_slice_update_is_clamped_as_in_keras(exported, format):
    result = exported["cache_slice"]
    assert worst(result, format) == 0
    assert result["report"]["artifacts"][format]["probes"] > 3  # Beside the three that were given.
    # A start of 31 for 4 rows in 32 is clamped to 28.
    cache, new = np.zeros((1, 32, 8), "float32"), np.ones((1, 4, 8), "float32")
    (written,) = load(exported.bundle("cache_slice"), format)(cache=cache, new=new, start=[31]).values()
    np.testing.assert_array_equal(written[0, :, 0], np.arange(32) >= 28)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision_is_exported_as_float32(exported, policy, format):
    result = exported[policy]
    assert result["policies"] == [policy]
    outputs = load(exported.bundle(policy), format)(token_ids=[[1, 2]], padding_mask=[[True, True]])
    assert {array.dtype.name for array in outputs.values()} == {"float32"}
    assert worst(result, format) <= 1e-5


@pytest.mark.parametrize("format", FORMATS)
def test_several_signatures_with_a_cache_that_keeps_its_name(exported, format):
    directory = exported.bundle("two_signatures")
    assert worst(exported["two_signatures"], format) <= 1e-5
    prefill, step = (load(directory, format, signature) for signature in ("prefill", "decode_step"))
    x = np.random.default_rng(5).standard_normal((2, 4, 4)).astype("float32")
    empty = np.zeros((2, 6, 4), "float32")
    whole = prefill(x=x, cache=empty)
    stepwise = prefill(x=x[:, :3], cache=empty)
    stepwise = step(x=x[:, 3], cache=stepwise["cache"])
    np.testing.assert_allclose(stepwise["cache"], whole["cache"], atol=1e-6)
    np.testing.assert_allclose(stepwise["last"], whole["last"], atol=1e-6)
    assert np.all(whole["cache"][:, :2] == 0)
    assert np.all(whole["cache"][:, 2:] != 0)


def test_one_format_alone_leaves_no_other(exported):
    exported["only_tflite"]
    names = {path.name for path in (exported.directory / "only").iterdir()}
    assert names == {"model.tflite", "manifest.json", "probes.npz", "report.html"}


def test_onnx_names_its_dynamic_axes(exported):
    onnx = pytest.importorskip("onnx")
    graph = onnx.load(exported.bundle("encoder") / "model.onnx").graph
    axes = {
        value.name: [dimension.dim_param or dimension.dim_value for dimension in value.type.tensor_type.shape.dim]
        for value in (*graph.input, *graph.output)
    }
    assert axes == {
        "token_ids": ["batch", "length"],
        "padding_mask": ["batch", "length"],
        "sequence": ["batch", "length", 32],
        "pooled": ["batch", 7],
    }
    assert {node.domain for node in graph.node} == {""}


def test_onnx_holds_the_exact_gelu(exported):
    onnx = pytest.importorskip("onnx")
    nodes = onnx.load(exported.bundle("encoder") / "model.onnx").graph.node
    gelus = [node for node in nodes if node.op_type == "Gelu"]
    assert len(gelus) == 2
    assert not any(attribute.name == "approximate" for node in gelus for attribute in node.attribute)


def test_lengths_of_two_sides_are_two_axes(exported):
    manifest = json.loads((exported.bundle("two_lengths") / "manifest.json").read_text())
    serve = manifest["signatures"]["serve"]
    assert [each["axes"] for each in serve["inputs"]] == [
        ["batch", "source_length", None],
        ["batch", "target_length", None],
        ["batch", "source_length"],
    ]
    assert serve["outputs"][0]["axes"] == ["batch", "target_length", None]


def test_tflite_keeps_signatures_and_uses_built_in_ops_only(exported):
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(exported.bundle("two_signatures") / "model.tflite"))
    signatures = interpreter.get_signature_list()
    assert set(signatures) == {"prefill", "decode_step"}
    assert set(signatures["prefill"]["inputs"]) == {"x", "cache"}
    content = (exported.bundle("encoder") / "model.tflite").read_bytes()
    assert b"Flex" not in content


def test_saved_model_answers_to_serving_default(exported):
    tf = pytest.importorskip("tensorflow")
    loaded = tf.saved_model.load(str(exported.bundle("mlp") / "saved_model"))
    assert set(loaded.signatures) == {"serve", "serving_default"}
    x = tf.ones((2, 8))
    expected = loaded.signatures["serve"](input=x)["probabilities"]
    np.testing.assert_array_equal(loaded.signatures["serving_default"](input=x)["probabilities"], expected)


LOOPS = """
import hashlib, pathlib, sys
import keras
from keras import ops
from keras_transformer.export import export

class Loops(keras.layers.Layer):
    def call(self, x):
        for factor in (2.0, 3.0, 5.0, 7.0):
            x = ops.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, ops.tanh(y * factor)), (0, x))[1]
        return x

x = keras.Input((4,), name="x")
export(keras.Model(x, Loops()(x)), sys.argv[1], ["onnx"], progress=False)
print(hashlib.sha256(pathlib.Path(sys.argv[1], "model.onnx").read_bytes()).hexdigest())
"""


@pytest.mark.exhaustive
def test_a_file_of_loops_is_the_same_in_every_process(tmp_path):
    digests = set()
    for seed in ("1", "2", "3"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", LOOPS, str(tmp_path / seed)]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
        digests.add(done.stdout.strip())
    assert len(digests) == 1
