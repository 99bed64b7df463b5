"""Every backbone of KerasHub, and its tasks, have a case that `benchmarks/every_keras_hub.py` tries."""

import importlib
import pathlib
import sys

import keras
import numpy as np
import pytest

pytestmark = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the exporter's own process")


@pytest.fixture
def module(monkeypatch):
    pytest.importorskip("keras_hub")
    monkeypatch.syspath_prepend(pathlib.Path(__file__).parents[2] / "benchmarks")
    return importlib.import_module


def test_every_class_is_told_what_it_must_be_told(module):
    cases = module("keras_hub_cases")
    assert {"BertBackbone", "SAMImageSegmenter", "RetinaNetObjectDetector"} <= set(cases.classes())
    assert {name: cases.missing(name) for name in cases.classes() if cases.missing(name)} == {}


def test_every_case_is_of_a_class(module):
    cases = module("keras_hub_cases")
    assert set(cases.ARGUMENTS) | set(cases.INPUTS) <= set(cases.classes())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ESMProteinClassifier", "ResNetBackbone"])
def test_what_a_small_model_computes_depends_on_its_inputs_and_weights(module, name):
    cases = module("keras_hub_cases")
    model = cases.build(name)
    inputs = keras.tree.pack_sequence_as(model.input, list(cases.arrays(name, model).values()))
    first = np.asarray(model(inputs, training=False))
    assert np.ptp(first, axis=0).max() > 1e-3 * np.abs(first).max()
    for weight in model.trainable_weights:
        before = weight.numpy()
        weight.assign(before + 0.5 + np.abs(before))
        second = np.asarray(model(inputs, training=False))
        assert np.abs(second - first).max() > 1e-4 * np.abs(first).max(), weight.path
        weight.assign(before)


def test_classes_are_told_by_their_family(module):
    every_keras_hub = module("every_keras_hub")
    proven = {"saved_model": "proven", "tflite": "proven", "onnx": "proven"}
    found = {
        "BertBackbone": proven,
        "BertTextClassifier": {**proven, "onnx": "WeightError: x"},
        "ViTBackbone": {**proven, "keras_onnx": "right"},
    }
    rows = every_keras_hub.by_family(found)
    assert rows["bert"]["onnx"] == {"BertBackbone": "proven", "BertTextClassifier": "WeightError: x"}
    page = every_keras_hub.page(found)
    cells = ["proven", "proven", "1 of 2; BertTextClassifier: WeightError: x", "–", "–"]
    assert f"| bert | BertBackbone, BertTextClassifier | {' | '.join(cells)} |" in page
    assert "SavedModel: 3 of 3; TFLite: 3 of 3; ONNX: 2 of 3; Keras's ONNX: 1 of 1; Keras's LiteRT: 0 of 0." in page


@pytest.mark.exhaustive
def test_workers_try_cells_and_say_where_one_ended(module):
    script, keras_cells = module("every_keras_hub").__file__, module("keras_cells")
    tried = ["BertBackbone onnx", "NoSuchBackbone onnx", "VGGBackbone keras_onnx"]
    found = dict(keras_cells.results([sys.executable, script, "--worker"], tried))
    assert found["BertBackbone onnx"] == "proven"
    assert found["NoSuchBackbone onnx"].startswith("error: Keras: ValueError")
    assert found["VGGBackbone keras_onnx"] == "right"
    ended = dict(keras_cells.results([sys.executable, "-c", "raise SystemExit(3)"], ["a", "b"]))
    assert ended == dict.fromkeys("ab", "error: the process ended with 3")
