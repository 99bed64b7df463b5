"""Bundles that every released version wrote load, and compute in each runtime what they computed when they were written."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from keras_transformer.export import InvalidBundleError, load, verify_bundle
from keras_transformer.export.bundle.manifest import read_manifest
from keras_transformer.export.data.manifest import FILE, SCHEMA

FOLDER = Path(__file__).parents[1] / "data" / "bundles"
VERSIONS = sorted(path.name for path in FOLDER.iterdir() if (path / "classifier").is_dir())
CLASSIFIER_FORMATS = ("onnx", "tflite", "saved_model")
WRITER_FORMATS = ("onnx", "tflite")


def stored(version, name):
    return json.loads((FOLDER / version / f"{name}.json").read_text(encoding="utf-8"))


def test_every_schema_of_manifests_has_bundles():
    schemas = {json.loads(path.read_text(encoding="utf-8"))["schema"] for path in FOLDER.glob(f"*/*/{FILE}")}
    assert schemas == set(range(1, SCHEMA + 1))
    assert "1.0" in VERSIONS


@pytest.mark.parametrize("format", CLASSIFIER_FORMATS)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_stored_classifier_computes_its_stored_outputs(version, format):
    expected = stored(version, "classifier")
    model = load(FOLDER / version / "classifier", format)
    found = model(np.array(expected["measurements"], "float32"))
    # Probabilities of three classes behind two products of at most 8 terms: a few units in the last place.
    np.testing.assert_allclose(found["kinds"], expected["kinds"], rtol=0, atol=16 * np.finfo("float32").eps)
    assert model.metadata["class_names"] == ["a", "b", "c"]


@pytest.mark.parametrize("format", WRITER_FORMATS)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_stored_language_model_writes_its_stored_text(version, format):
    expected = stored(version, "writer")
    writer = load(FOLDER / version / "writer", format)
    assert writer.generate(expected["prompt"], max_new_tokens=8) == expected["text"]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_stored_bundle_is_verified_with_its_own_probes(version):
    report = verify_bundle(FOLDER / version / "classifier", ["onnx", "tflite"])
    assert list(report.artifacts) == ["onnx", "tflite"]


def test_a_bundle_of_a_later_schema_is_refused(tmp_path):
    shutil.copytree(FOLDER / "1.0" / "classifier", tmp_path / "later")
    path = tmp_path / "later" / FILE
    manifest = json.loads(path.read_text(encoding="utf-8")) | {"schema": SCHEMA + 1}
    path.write_text(json.dumps(manifest), encoding="utf-8")
    with pytest.raises(InvalidBundleError, match=f"has schema {SCHEMA + 1}: a newer version wrote it"):
        read_manifest(tmp_path / "later")
