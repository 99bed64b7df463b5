"""Wrong arguments raise an error that names the argument and the expected values."""

import sys

import keras
import numpy as np
import pytest

from keras_transformer import models, tasks
from keras_transformer.export import (
    InputError,
    Int8,
    InvalidModelError,
    MissingLibraryError,
    QuantizationError,
    UnknownFormatError,
    UnsupportedOpError,
    export,
    load,
    sensitivity,
)

X = np.ones((2, 4), "float32")


def dense():
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        (
            ("model.keras",),
            {},
            InvalidModelError,
            "model must be a Keras model, not the path 'model.keras'; load it first",
        ),
        ((np.ones(3),), {}, InvalidModelError, "model must be a Keras model or layer, not ndarray"),
        ((None,), {"formats": ["tflit"]}, UnknownFormatError, "unknown format 'tflit'.*did you mean 'tflite'"),
        ((None,), {"quantize": "int_8"}, QuantizationError, "unknown quantization 'int_8'.*did you mean 'int8'"),
        ((None,), {"quantize": 8}, QuantizationError, "quantize must be the name of a mode.*8"),
    ],
)
def test_arguments_of_export(tmp_path, arguments, options, error, message):
    model = dense() if arguments[0] is None else arguments[0]
    with pytest.raises(error, match=message):
        export(model, tmp_path / "bundle", **options)
    assert list(tmp_path.iterdir()) == []


def test_a_backend_that_does_not_exist(tmp_path):
    with pytest.raises(UnknownFormatError, match="did you mean 'saved_model'"):
        load(tmp_path, "savedmodel")


def test_sensitivity_takes_an_evaluation(tmp_path):
    with pytest.raises(QuantizationError, match="evaluation must be an Evaluation. Received: ndarray"):
        sensitivity(tmp_path, "int8", np.ones((2, 3)))


def test_a_missing_keras_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "keras", None)
    with pytest.raises(MissingLibraryError, match="export needs keras: pip install keras"):
        export(None, tmp_path)


@pytest.mark.parametrize("task", [tasks.ImageClassifier, tasks.SequenceClassifier, tasks.DistilledImageClassifier])
def test_a_backbone_that_is_a_layer(task):
    with pytest.raises(ValueError, match="backbone must be a Functional keras.Model.*Received: <Dense"):
        task(keras.layers.Dense(3), num_classes=2)


def test_a_sequence_longer_than_the_model_allows(tmp_path):
    limit = 12
    encoder = models.Encoder(models.Size(1, 8, 2, 16), vocabulary_size=20, max_sequence_length=limit)
    export(encoder, tmp_path / "bundle", formats=["onnx"])
    model = load(tmp_path / "bundle", "onnx")
    ids = np.ones((1, limit + 1), "int32")
    assert model(token_ids=ids[:, 1:], padding_mask=ids[:, 1:] > 0)
    with pytest.raises(InputError, match=f"length <= {limit}, got length={limit + 1}"):
        model(token_ids=ids, padding_mask=ids > 0)


def recurrent(layer, **options):
    batch_shape = options.pop("batch_shape", (None, None, 3))
    return keras.Sequential([keras.Input(batch_shape=batch_shape), layer(4, name="memory", **options)])


class Doubled(keras.layers.Layer):
    """A list of a loop, whose elements are rows of the input."""

    def call(self, inputs):
        return keras.ops.map(lambda row: 2 * row, inputs)


def mapped(batch_shape):
    return keras.Sequential([keras.Input(batch_shape=batch_shape), Doubled(name="rows")])


@pytest.mark.slow
def test_a_list_of_a_loop_in_tflite_says_what_to_do(tmp_path):
    with pytest.raises(UnsupportedOpError, match="while_loop.*formats=\\['onnx'\\]") as caught:
        export(mapped((None, None, 3)), tmp_path / "bundle", formats=["tflite"])
    assert caught.value.layer == "rows"


@pytest.mark.slow
def test_what_the_error_advises_works(tmp_path):
    assert export(mapped((None, 5, 3)), tmp_path / "tflite", formats=["tflite"])["tflite"].ratio < 1e-5
    assert export(mapped((None, None, 3)), tmp_path / "onnx", formats=["onnx"])["onnx"].ratio < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{"batch_shape": (None, 5, 3), "unroll": True}, {"batch_shape": (2, None, 3)}], ids=["unrolled", "batch"]
)
def test_loops_of_fixed_elements_go_to_tflite_as_they_are(options, tmp_path):
    report = export(recurrent(keras.layers.LSTM, **options), tmp_path / "bundle", formats=["tflite"])
    assert report["tflite"].ratio < 1e-5


def test_a_mode_keeps_its_own_tolerance():
    assert Int8().tolerance == 0.3
    assert Int8(tolerance=0.1).tolerance == 0.1
