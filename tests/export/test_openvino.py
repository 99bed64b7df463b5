"""OpenVINO IR: made from the ONNX files, proven in OpenVINO, and read without it."""

import importlib.util
import json

import keras
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from keras_transformer import models, tasks
from keras_transformer.export import ExportError, ExportOptions, UnsupportedOpError, WeightError, export, load, quantize
from keras_transformer.export.bundle.manifest import read_manifest
from keras_transformer.export.data.export_spec import ExportSpec, Signature
from keras_transformer.export.formats import FORMATS, files_of, written_versions
from keras_transformer.export.openvino import convert, layers

needs_openvino = pytest.mark.skipif(importlib.util.find_spec("openvino") is None, reason="no openvino")
X = np.random.default_rng(0).normal(size=(3, 64)).astype("float32")
IR = """\
<net name="hand-made" version="11">
  <layers>
    <layer id="0" name="x" type="Parameter" version="opset1" />
    <layer id="1" name="image/kernel" type="Const" version="opset1">
      <data element_type="f32" shape="2, 3, 1, 1" offset="0" size="24" />
    </layer>
    <layer id="2" name="image" type="Convolution" version="opset1" />
    <layer id="3" name="loop" type="Loop" version="opset5">
      <body>
        <layers>
          <layer id="0" name="one" type="Const" version="opset1">
            <data element_type="i64" shape="" offset="24" size="8" />
          </layer>
          <layer id="1" name="half" type="Const" version="opset1">
            <data element_type="u4" shape="3" offset="32" size="2" />
          </layer>
          <layer id="2" name="add" type="Add" version="opset1" />
        </layers>
      </body>
    </layer>
  </layers>
  <edges>
    <edge from-layer="0" from-port="0" to-layer="2" to-port="0" />
    <edge from-layer="1" from-port="0" to-layer="2" to-port="1" />
  </edges>
</net>
"""


def network():
    """A model of two inputs and three outputs, one of which is an input."""
    keras.utils.set_random_seed(0)
    x, ids = keras.Input((64,), name="x"), keras.Input((None,), dtype="int32", name="ids")
    hidden = keras.layers.Dense(64, "gelu")(x)
    mean = keras.layers.GlobalAveragePooling1D()(keras.layers.Embedding(9, 64)(ids))
    outputs = {"y": keras.layers.Dense(3)(hidden + mean), "hidden": hidden, "same": x}
    return keras.Model({"x": x, "ids": ids}, outputs)


@needs_openvino
def test_float_files_are_proven(tmp_path):
    model = network()
    options = ExportOptions(metadata={"description": 'Small & "plain"', "class_names": ["a", "b", "c"]})
    report = export(model, tmp_path / "bundle", ["openvino"], progress=False, options=options)
    assert list(report.artifacts) == ["onnx", "openvino"]
    manifest = read_manifest(tmp_path / "bundle")
    assert manifest.artifacts["openvino"].weights.to_dict() == {"equal": 5, "computed": [], "unaccounted": []}
    inputs = {"x": X, "ids": np.array([[1, 2, 3, 4, 8]] * 3, "int32")}
    found = load(tmp_path / "bundle", "openvino")(inputs)
    for name, expected in model(inputs).items():
        np.testing.assert_allclose(found[name], expected, atol=1e-5)
    assert "openvino" in manifest.versions
    assert "openvino" not in written_versions()
    assert set(files_of(manifest, "openvino")) == {"model.xml", "model.bin"}
    assert files_of(manifest, "onnx") == ["model.onnx"]
    counted = FORMATS["openvino"].count_operations(tmp_path / "bundle" / "model.xml")
    assert (counted["MatMul"], counted["Gelu"], counted["Const"]) == (2, 1, 0)
    written = importlib.import_module("openvino").Core().read_model(tmp_path / "bundle" / "model.xml")
    assert written.get_rt_info(["model_info", "description"]).astype(str) == 'Small & "plain"'
    assert json.loads(written.get_rt_info(["model_info", "class_names"]).astype(str)) == ["a", "b", "c"]


@needs_openvino
def test_the_same_model_gives_the_same_bytes(tmp_path):
    model = network()
    for name in ("one", "two"):
        export(model, tmp_path / name, ["openvino"], progress=False)
    for file in ("model.xml", "model.bin"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


@needs_openvino
def test_a_changed_weight_is_refused(tmp_path, monkeypatch):
    def changed(path):
        weights = np.fromfile(path.with_suffix(".bin"), "float32")
        weights[np.argmax(np.abs(weights) > 0.01)] *= 1.01
        weights.tofile(path.with_suffix(".bin"))

    monkeypatch.setattr(convert, "_number_names_from_one", changed)
    with pytest.raises(WeightError, match=r"openvino: weight '.*' differs from the model at"):
        export(network(), tmp_path / "bundle", ["openvino"], progress=False)
    assert list(tmp_path.iterdir()) == []


@needs_openvino
def test_quantized_files_are_made_from_the_quantized_onnx_files(tmp_path):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((64,), name="x"), keras.layers.Dense(512, "relu"), keras.layers.Dense(64)])
    reports = export(model, tmp_path / "all", ["openvino"], quantize=["float32", "fp16", "weight_int8"], progress=False)
    shares = {name: each["openvino"].size / reports["float32"]["openvino"].size for name, each in reports.items()}
    assert 0.5 < shares["fp16"] < 0.55
    assert 0.25 < shares["weight_int8"] < 0.4
    again = quantize(tmp_path / "all" / "float32", tmp_path / "again", "fp16", progress=False)
    assert list(again.artifacts) == ["onnx", "openvino"]
    for folder in ("all/fp16", "again"):
        outputs = load(tmp_path / folder, "openvino")(X)
        for name, expected in load(tmp_path / folder, "onnx")(X).items():
            np.testing.assert_allclose(outputs[name], expected, atol=1e-5)


@needs_openvino
def test_a_language_model_generates_the_same_tokens(tmp_path):
    keras.utils.set_random_seed(0)
    size = models.Size(num_layers=2, hidden_dim=16, num_heads=2, intermediate_dim=24)
    model = tasks.LanguageModel(models.Decoder(size, 40, position="rotary"), end_id=1)
    export(model, tmp_path / "bundle", ["openvino"], progress=False)
    record = read_manifest(tmp_path / "bundle").artifacts["openvino"]
    assert record.signatures["decode"] == "model.decode.xml"
    assert record.names["decode"].outputs["decoder_block_0_key"] == "decoder_block_0_key_output"
    prompts = [[3, 4, 5], [7, 8, 9, 10, 11]]
    found, expected = (
        load(tmp_path / "bundle", name).generate(prompts, max_new_tokens=9) for name in ("openvino", "onnx")
    )
    assert found == expected


@needs_openvino
@pytest.mark.parametrize(
    ("op", "domain", "hint"), [("NGramRepeatBlock", "com.microsoft", "contrib_ops=False"), ("NoSuchOperator", "", "")]
)
def test_an_operator_that_openvino_lacks_is_named(tmp_path, op, domain, hint):
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, 4]) for name in "xy")
    graph = helper.make_graph([helper.make_node(op, ["x"], ["y"], "block/call", domain=domain)], "graph", [x], [y])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), tmp_path / "model.onnx")
    spec = ExportSpec({"serve": Signature(None, (), [])}, locate=lambda op, node: f"layer of {node}")
    with pytest.raises(UnsupportedOpError, match=f"openvino: op {op} of layer 'layer of block/call'.*{hint}"):
        convert.convert({"serve": "model.onnx"}, spec, tmp_path)


@needs_openvino
def test_a_file_of_another_format_is_not_opened(tmp_path):
    from keras_transformer.export.openvino.runtime import compiled_model

    with pytest.raises(ValueError, match="'model.onnx' is not an .xml file"):
        compiled_model(tmp_path / "model.onnx", 1)


def test_without_openvino_an_export_is_refused_before_work(tmp_path, monkeypatch):
    monkeypatch.setitem(importlib.import_module("sys").modules, "openvino", None)
    with pytest.raises(ExportError, match="format 'openvino' needs openvino: pip install openvino"):
        export(network(), tmp_path / "bundle", ["openvino"], progress=False)


def test_layers_and_constants_are_read_without_openvino(tmp_path):
    kernel = np.arange(6, dtype="float32").reshape(2, 3, 1, 1)
    (tmp_path / "model.xml").write_text(IR)
    (tmp_path / "model.bin").write_bytes(kernel.tobytes() + np.int64(7).tobytes() + b"\x21\x03")
    assert list(layers.operations(tmp_path / "model.xml")) == ["Convolution", "Loop", "Add"]
    first, second = layers.stored_weights(tmp_path, ["model.xml"], ["image/kernel"])
    assert (first.origin, second.origin) == ("image/kernel", None)
    np.testing.assert_array_equal(first.values, kernel.transpose(2, 3, 1, 0))
    assert (second.name, second.values.tolist()) == ("one", 7)
    assert [each[1:] for each in layers.weight_bytes(tmp_path, ["model.xml"])] == [
        ("float32", (2, 3, 1, 1), 24),
        ("int64", (), 8),
        ("u4", (3,), 2),
    ]
