"""The JSON schema of the manifest: every bundle that the tests write satisfies it, and a wrong one does not."""

import copy
import dataclasses
import json

import jsonschema
import pytest

from keras_transformer.export.data.artifact_record import ArtifactRecord
from keras_transformer.export.data.manifest import SCHEMA, SCHEMA_PATH, Manifest, manifest_schema
from keras_transformer.export.data.manifest_records import WeightsRecord

# Each in the process that waits for its worker anyway.
WORKERS = [
    pytest.param(name, marks=[pytest.mark.xdist_group(name), pytest.mark.slow])
    for name in ("exported", "language", "tflite", "optimized", "behaviors", "blocks", "learned")
]


@pytest.fixture(scope="module")
def validator():
    schema = manifest_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_the_schema_is_of_this_version():
    assert manifest_schema()["properties"]["schema"]["const"] == SCHEMA
    assert SCHEMA_PATH.name == "manifest.schema.json"


@pytest.mark.parametrize("worker", WORKERS)
def test_every_bundle_satisfies_it(request, validator, worker):
    folder = request.getfixturevalue(worker).directory
    paths = sorted(folder.rglob("manifest.json"))
    assert paths
    for path in paths:
        error = jsonschema.exceptions.best_match(validator.iter_errors(json.loads(path.read_text())))
        assert error is None, f"{path.parent.name}: {error.json_path}: {error.message}"


@pytest.mark.parametrize("worker", WORKERS)
def test_a_manifest_is_written_as_it_was_read(request, worker):
    for path in sorted(request.getfixturevalue(worker).directory.rglob("manifest.json")):
        text = path.read_text()
        manifest = Manifest.from_dict(json.loads(text), path)
        assert json.dumps(manifest.to_dict(), indent=2) + "\n" == text, path.parent.name


def test_quantized_files_name_their_weights_after_what_they_are_compared_with():
    weights = WeightsRecord(2, unaccounted=("table",), rounded=5)
    record = ArtifactRecord({"serve": "model.onnx"}, size=9, weights=weights)
    assert list(record.to_dict()) == ["signatures", "bytes", "weights"]
    quantized = dataclasses.replace(record, float_size=20, quantization="int8", tolerance=0.3)
    assert list(quantized.to_dict()) == ["signatures", "bytes", "float_bytes", "quantization", "tolerance", "weights"]
    assert quantized.to_dict()["weights"] == {"equal": 2, "rounded": 5, "computed": [], "unaccounted": ["table"]}
    assert ArtifactRecord.from_dict(quantized.to_dict(), "onnx") == quantized


WRONG = {
    "schema 2": lambda manifest: manifest.update(schema=2),
    "no files": lambda manifest: manifest.pop("files"),
    "no signatures": lambda manifest: manifest.update(signatures={}),
    "a dtype": lambda manifest: first(manifest)["inputs"][0].update(dtype="float31"),
    "a size": lambda manifest: first(manifest)["inputs"][0].update(shape=[-1]),
    "a date": lambda manifest: manifest.update(created="yesterday"),
    "an axis": lambda manifest: first(manifest)["outputs"][0].update(axes=[3]),
    "another field": lambda manifest: first(manifest).update(state=[]),
    "a hash": lambda manifest: manifest["files"]["model.onnx"].update(sha256="00"),
    "names": lambda manifest: manifest["artifacts"]["onnx"]["names"]["serve"].pop("outputs"),
    "class names": lambda manifest: manifest["metadata"].update(class_names=[1]),
    "an input": lambda manifest: manifest["metadata"]["inputs"]["token_ids"].update(scale=3),
}


def first(manifest):
    return manifest["signatures"]["serve"]


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_manifest_does_not(exported, validator, name):
    exported["described"]
    manifest = json.loads((exported.directory / "described" / "manifest.json").read_text())
    wrong = copy.deepcopy(manifest)
    WRONG[name](wrong)
    assert validator.is_valid(manifest)
    assert not validator.is_valid(wrong)
