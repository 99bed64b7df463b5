"""What TensorFlow's optimizer makes of an operation in a SavedModel is mended as in other files."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.export import export, load

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the exporter's own process"),
]


def test_the_opposite_of_a_comparison_with_nan_is_true(tmp_path):
    x = keras.Input((4,), name="x")
    compared = {"greater": x > 1.0, "at_least": x >= 1.0, "less": x < 1.0, "at_most": x <= 1.0}
    model = keras.Model(x, {name: ops.logical_not(each) for name, each in compared.items()})
    export(model, tmp_path / "bundle", ["saved_model", "onnx", "tflite"], progress=False)
    values = np.array([[np.nan, 0.5, 1.0, 2.0]], "float32")
    for name in ("saved_model", "onnx", "tflite"):
        found = load(tmp_path / "bundle", name)({"x": values})
        assert {key: each[0].tolist() for key, each in found.items()} == {
            "greater": [True, True, True, False],
            "at_least": [True, True, False, False],
            "less": [True, False, True, True],
            "at_most": [True, False, False, True],
        }, name
