"""Metadata of a model: in the manifest, at run time, and in the ONNX and TFLite files."""

import json

import numpy as np
import onnx
import pytest
from worker_metadata import METADATA

from keras_transformer.export import ExportError, load
from keras_transformer.export.bundle.manifest import read_manifest
from keras_transformer.export.bundle.metadata import check_input_names, check_metadata, file_entries
from keras_transformer.export.tflite.passes.interface import read_metadata
from keras_transformer.export.tflite.tree import read_file
from keras_transformer.vision import ImageProcessor


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ([1], "metadata must be a dict of JSON values.*list"),
        ({"a": {1, 2}}, "cannot be written as JSON"),
        ({"a": float("nan")}, "cannot be written as JSON"),
        ({"": 1}, "must not have the key ''"),
        ({3: 1}, "must not have the key 3"),
        ({"TFLITE_METADATA": "x"}, "must not have the key 'TFLITE_METADATA'"),
        ({"description": 3}, r"\['description'\] must be a str"),
        ({"class_names": "abc"}, r"\['class_names'\] must be a list of str"),
        ({"class_names": ["a", 1]}, r"\['class_names'\] must be a list of str"),
        ({"inputs": ["x"]}, r"\['inputs'\] must be a dict"),
        ({"inputs": {"x": {"scale": 1}}}, r"\['inputs'\]\['x'\] must be a dict of description, range, mean, std"),
        ({"inputs": {"x": {"description": 1}}}, r"\['description'\] must be a str"),
        ({"inputs": {"x": {"range": [1, 0]}}}, r"\['range'\] must be \[least, largest\]"),
        ({"inputs": {"x": {"range": [1]}}}, r"\['range'\] must be"),
        ({"inputs": {"x": {"mean": []}}}, r"\['mean'\] must be a number or a list"),
        ({"inputs": {"x": {"mean": True}}}, r"\['mean'\] must be a number or a list"),
        ({"inputs": {"x": {"std": [1, 0]}}}, r"\['std'\] must not be 0"),
    ],
)
def test_wrong_metadata_is_refused(wrong, message):
    with pytest.raises(ExportError, match=message):
        check_metadata(wrong)


def test_right_metadata_is_accepted():
    check_metadata(None)
    check_metadata(METADATA)
    check_metadata({"inputs": {"images": ImageProcessor(mean=[0.5, 0.4, 0.3]).normalization}})
    check_input_names(METADATA, ["padding_mask", "token_ids"])
    with pytest.raises(ExportError, match="describes 'token_ids'; the inputs are images, padding_mask"):
        check_input_names(METADATA, ["images", "padding_mask", "images"])


def test_the_normalization_of_an_image_processor():
    """The recorded figures, applied to levels, give what the processor gives."""
    processor = ImageProcessor(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225])
    levels = np.random.default_rng(0).integers(0, 256, (5, 7, 3)).astype("uint8")
    record = processor.normalization
    assert record["range"] == [0, 255]
    assert record["mean"][0] == pytest.approx(123.675)
    found = (levels - np.array(record["mean"])) / np.array(record["std"])
    np.testing.assert_allclose(found, processor(levels)[0], atol=1e-6)
    assert ImageProcessor(rescale=None).normalization == {"range": [0, 255], "mean": 0.0, "std": 1.0}


def entries_of(bundle, backend):
    """Description and entries of the file, as its own library reads them."""
    if backend == "onnx":
        model = onnx.load(str(bundle / "model.onnx"), load_external_data=False)
        assert model.producer_name == "keras_transformer.export"
        return model.doc_string, {each.key: each.value for each in model.metadata_props}
    model = read_file(bundle / "model.tflite")
    entries = read_metadata(model)
    assert entries.pop("producer").startswith(b"keras_transformer.export ")
    entries.pop("min_runtime_version")
    return model.description.decode(), {name: content.decode() for name, content in entries.items()}


@pytest.mark.parametrize("backend", ["tflite", "onnx"])
@pytest.mark.parametrize("name", ["described", "described_fp16"])
def test_files_describe_themselves(exported, name, backend):
    exported["described"]
    bundle = exported.directory / name
    description, entries = entries_of(bundle, backend)
    assert description == METADATA["description"]
    assert entries == file_entries(METADATA)
    assert entries["class_names"] == '["cat", "dog", "ü"]'
    assert json.loads(entries["inputs"]) == METADATA["inputs"]
    assert read_manifest(bundle).metadata == METADATA
    assert load(bundle, backend).metadata == METADATA


def test_onnx_runtime_and_language_models_give_them(exported, language):
    import onnxruntime

    exported["described"]
    session = onnxruntime.InferenceSession(str(exported.directory / "described" / "model.onnx"))
    assert session.get_modelmeta().custom_metadata_map == file_entries(METADATA)
    assert session.get_modelmeta().description == METADATA["description"]
    assert load(language.bundle("gpt")).metadata == {}


@pytest.mark.parametrize("file", ["model.onnx", "model.tflite"])
def test_the_same_model_gives_the_same_bytes(exported, file):
    exported["described"]
    first, second = ((exported.directory / name / file).read_bytes() for name in ("described", "described_again"))
    assert first == second
