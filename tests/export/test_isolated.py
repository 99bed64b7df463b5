"""Bundles in a process of their own: the same results, and typed errors where the process crashes, hangs or swells."""

import gc
import io
import json
import os

import flatbuffers
import numpy as np
import onnx
import pytest
from hand_made import bundle_of
from onnx import parser

from keras_transformer.export import ExportError, InputError, InvalidBundleError, Isolation, RunError, load
from keras_transformer.export.loading.isolated import messages
from keras_transformer.export.tflite.tree import schema
from keras_transformer.generation import GenerationError


def onnx_bundle(path, text, dtype="float32", shape=(None,)):
    model = parser.parse_model(text)
    onnx.checker.check_model(model)
    specs = {"x": (dtype, shape)}, {"y": (dtype, shape)}
    return bundle_of(path, "onnx", model.SerializeToString(), *specs)


ADD = '<ir_version: 9, opset_import: ["" : 18]> g (float[N] x) => (float[N] y) { y = Add(x, x) }'
# As many turns as the input says.
LOOP = """<ir_version: 9, opset_import: ["" : 18]> g (int64[N] x) => (int64[N] y) {
    turns = ReduceMax<keepdims = 0>(x)
    go = Constant<value = bool {1}>()
    y = Loop(turns, go, x)<body = b (int64 i, bool again, int64[N] a) => (bool once_more, int64[N] c)
        { once_more = Identity(again)  c = Add(a, a) }>
}"""
# An array of as many bytes as the input says.
SWELL = """<ir_version: 9, opset_import: ["" : 18]> g (int64[N] x) => (int64[N] y) {
    large = ConstantOfShape(x)
    sum = ReduceSum<keepdims = 0>(large)
    ints = Cast<to = 7>(sum)
    y = Add(x, ints)
}"""


def test_it_computes_the_same(tmp_path):
    bundle = onnx_bundle(tmp_path / "bundle", ADD)
    model, own = load(bundle, isolated=True), load(bundle)
    x = np.linspace(-1, 1, 100_000, dtype="float32")
    np.testing.assert_array_equal(model(x)["y"], own(x)["y"])
    assert (model.inputs, model.outputs) == (own.inputs, own.outputs)
    assert model.predict(x[:7], batch_size=3)["y"].tolist() == own(x[:7])["y"].tolist()
    with pytest.raises(InputError, match="input 'x'"):
        model(np.ones((2, 2)))


def running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_its_process_ends_with_it(tmp_path):
    model = load(onnx_bundle(tmp_path / "bundle", ADD), isolated=True)
    pid = model._process._process.pid
    assert running(pid)
    model.close()
    assert not running(pid)
    assert model(np.ones(1))["y"].tolist() == [2.0], "a further call starts it again"
    pid = model._process._process.pid
    del model
    gc.collect()
    assert not running(pid)


def test_a_call_that_takes_too_long(tmp_path):
    model = load(onnx_bundle(tmp_path / "bundle", LOOP, "int64"), isolated=Isolation(seconds=3.0))
    assert model(np.int64([2, 1]))["y"].tolist() == [8, 4]
    pid = model._process._process.pid
    with pytest.raises(RunError, match="onnx: signature 'serve' cannot be computed: it took longer than 3 s"):
        model(np.int64([2**60]))
    assert not running(pid)
    assert model(np.int64([2, 1]))["y"].tolist() == [8, 4]


def test_a_call_that_takes_too_much_memory(tmp_path):
    model = load(onnx_bundle(tmp_path / "bundle", SWELL, "int64"), isolated=Isolation(memory_bytes=2**29))
    assert model(np.int64([2]))["y"].tolist() == [2]
    with pytest.raises(RunError, match="cannot be computed"):
        model(np.int64([2**28]))
    assert model(np.int64([3]))["y"].tolist() == [3]


def remainder():
    """A TFLite file that divides its inputs, which the check of the file cannot judge."""
    parts = schema()
    tensors = [parts.TensorT(shape=np.int32([1]), type=2, name=name, buffer=0, hasRank=True) for name in "xzy"]
    operator = parts.OperatorT(inputs=np.int32([0, 1]), outputs=np.int32([2]))
    operator.builtinOptionsType, operator.builtinOptions = (
        parts.BuiltinOptions.FloorModOptions,
        parts.FloorModOptionsT(),
    )
    graph = parts.SubGraphT(tensors=tensors, inputs=np.int32([0, 1]), outputs=np.int32([2]), operators=[operator])
    maps = [parts.TensorMapT(name=name, tensorIndex=index) for index, name in enumerate("xzy")]
    signature = parts.SignatureDefT(inputs=maps[:2], outputs=maps[2:], signatureKey="serve", subgraphIndex=0)
    code = parts.OperatorCodeT(builtinCode=parts.BuiltinOperator.FLOOR_MOD, deprecatedBuiltinCode=95, version=1)
    code.deprecatedBuiltinCode = min(code.builtinCode, 127)
    model = parts.ModelT(version=3, buffers=[parts.BufferT()], subgraphs=[graph], operatorCodes=[code])
    model.signatureDefs = [signature]
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def test_a_call_that_crashes(tmp_path):
    inputs, outputs = dict.fromkeys("xz", ("int32", (1,))), {"y": ("int32", (1,))}
    bundle = bundle_of(tmp_path / "bundle", "tflite", remainder(), inputs, outputs)
    model = load(bundle, "tflite", isolated=True)
    assert model(x=[7], z=[4])["y"].tolist() == [3]
    with pytest.raises(RunError, match="tflite: signature 'serve' cannot be computed: its process ended by SIGFPE"):
        model(x=[-(2**31)], z=[-1])
    assert model(x=[7], z=[4])["y"].tolist() == [3]


def test_a_bundle_that_cannot_be_loaded(tmp_path):
    bundle = onnx_bundle(tmp_path / "bundle", ADD)
    content = bytearray((bundle / "model.onnx").read_bytes())
    content[20:40] = bytes(20)
    (bundle / "model.onnx").write_bytes(content)
    with pytest.raises(InvalidBundleError, match=r"'model\.onnx' was altered"):
        load(bundle, isolated=True)
    with pytest.raises(InvalidBundleError, match="onnx artifact of '.*' cannot be loaded"):
        load(bundle, check=False, isolated=True)
    with pytest.raises(InvalidBundleError, match="cannot be loaded: it took longer than 0.01 s"):
        load(bundle, isolated=Isolation(loading_seconds=0.01))
    with pytest.raises(ExportError, match="isolated must be a bool or an Isolation"):
        load(bundle, isolated="yes")
    for wrong in ({"seconds": 0}, {"memory_bytes": True}, {"loading_seconds": float("inf")}):
        with pytest.raises(ExportError, match="must be a positive number"):
            Isolation(**wrong)


def test_secrets_of_the_environment_stay_outside(tmp_path, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "secret")
    model = load(onnx_bundle(tmp_path / "bundle", ADD), isolated=True)
    with open(f"/proc/{model._process._process.pid}/environ", "rb") as file:
        assert b"secret" not in file.read()


def reply(header, content=b""):
    text = json.dumps(header).encode()
    return io.BytesIO(messages.LENGTH.pack(len(text)) + text + content)


def test_replies_are_data():
    """A process that was taken over can reply what it likes."""
    arrays = {"a": np.float32([[1, 2]]), "b": np.array([["é", ""]]), "c": np.array(True)}
    found = messages.decoded(io.BytesIO(b"".join(messages.encoded(arrays))).read, 2**20)
    assert {name: (each.tolist(), each.dtype) for name, each in found.items()} == {
        name: (each.tolist(), each.dtype) for name, each in arrays.items()
    }
    for dtype, shape in (("object", [1]), ("float32", [2**40]), ("float32", [-1]), ("no type", [1])):
        with pytest.raises((ValueError, TypeError)):
            messages.decoded(reply({"arrays": [{"name": "a", "dtype": dtype, "shape": shape}]}, bytes(8)).read, 2**20)
    with pytest.raises(ExportError, match="^SystemExit: now$"):
        messages.decoded(reply({"class": "SystemExit", "message": "now", "state": {}}).read, 0)
    with pytest.raises(InputError, match="input 'x'") as caught:
        messages.decoded(io.BytesIO(b"".join(messages.encoded_error(InputError("x", "one", "two")))).read, 0)
    assert caught.value.name == "x"


def test_a_language_model_generates(language):
    bundle = language.bundle("gpt")
    model, own = load(bundle, isolated=True), load(bundle)
    assert model.generate([[5, 6, 7], [5]], max_new_tokens=4) == own.generate([[5, 6, 7], [5]], max_new_tokens=4)
    assert model.generate("a b", max_new_tokens=3) == own.generate("a b", max_new_tokens=3)
    with pytest.raises(GenerationError):
        model.generate([5], max_new_tokens=0)
    with pytest.raises(ExportError, match="has generate alone: load it without isolated for stream"):
        model.stream([5])


def test_every_runtime(exported):
    for backend in ("saved_model", "tflite"):
        bundle = exported.bundle("two_signatures")
        model = load(bundle, backend, isolated=True)
        arrays = model.example()
        for name, expected in load(bundle, backend)(arrays).items():
            np.testing.assert_array_equal(model(arrays)[name], expected)
