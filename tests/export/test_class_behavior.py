"""The change of the distributions of quantized classifiers: hand-computed figures, and limits."""

import keras
import numpy as np
import pytest
from test_behavior import faulty

from keras_transformer.export import QuantizationError, export, verify_bundle
from keras_transformer.export.data.limits import LIMITS
from keras_transformer.export.verification.quantized.classes import ClassChanges, check_classes

FLOAT = np.log([[0.5, 0.25, 0.25], [0.8, 0.1, 0.1]])
OTHER = np.log([[0.25, 0.5, 0.25], [0.4, 0.3, 0.3]])
DIVERGENCE = (0.5 * np.log(2) - 0.25 * np.log(2) + 0.8 * np.log(2) - 0.2 * np.log(3)) / 2


def figures(name, got, expected):
    changes = ClassChanges()
    changes.add(name, np.asarray(got), np.asarray(expected))
    return changes.figures()


@pytest.mark.parametrize(
    ("name", "got", "expected"),
    [
        ("logits", OTHER + 3.0, FLOAT - 2.0),
        ("class_logits", OTHER[:, None], FLOAT[:, None]),
        ("probabilities", np.exp(OTHER), np.exp(FLOAT)),
        ("start_logits", np.pad(OTHER, ((0, 0), (0, 2)), constant_values=-1e9),
         np.pad(FLOAT, ((0, 0), (0, 2)), constant_values=-1e9)),
        ("logits", np.pad(OTHER, ((0, 0), (0, 1)), constant_values=-np.inf),
         np.pad(FLOAT, ((0, 0), (0, 1)), constant_values=-np.inf)),
    ],
)  # fmt: skip
def test_figures_are_those_of_a_hand_computation(name, got, expected):
    found = figures(name, got, expected)
    assert found["divergence"] == pytest.approx(DIVERGENCE, rel=1e-6)
    assert (found["top_share"], found["predictions"]) == (0.5, 2)


def test_one_number_for_a_label_is_two_classes():
    even = np.log(3.0) * np.array([[1.0]])  # A probability of 3/4, and of 1/2.
    wanted = 0.75 * np.log(1.5) + 0.25 * np.log(0.5)
    assert figures("logits", 0 * even, even)["divergence"] == pytest.approx(wanted)
    sigmoid = figures("probabilities", [[0.5, 0.9]], [[0.75, 0.9]])
    assert sigmoid["divergence"] == pytest.approx(wanted / 2)
    assert sigmoid["predictions"] == 2


def test_other_outputs_are_no_distributions():
    assert figures("embedding", OTHER, FLOAT) is None
    assert figures("logits", OTHER[0], FLOAT[0]) is None


def test_a_tie_may_be_decided_either_way():
    expected = np.log([[0.49, 0.51]])
    assert figures("logits", expected[:, ::-1], expected)["top_share"] == 1.0


@pytest.mark.parametrize("mode", LIMITS)
def test_each_limit_is_applied(mode):
    limits = LIMITS[mode]
    good = {"divergence": limits.classes, "top_share": limits.top_share, "predictions": 100}
    check_classes("onnx", good, limits)
    for worse in ({"divergence": 1.01 * limits.classes}, {"divergence": float("nan")}, {"top_share": 0.0}):
        with pytest.raises(QuantizationError, match="onnx: the "):
            check_classes("onnx", good | worse, limits)
    check_classes("onnx", good | {"top_share": 0.0, "predictions": 99}, limits)


def test_a_file_with_wrong_scales_is_refused_by_its_classes(tmp_path):
    """Logits 0.72 times as large change by less than `int8` may change an output, but the classes are others."""
    random = np.random.default_rng(0)
    x = keras.Input((64,), name="x")
    y = keras.layers.Dense(48, name="logits_of_classes")(keras.layers.Dense(96, "relu")(x))
    model = keras.Model(x, {"logits": y}, name="classifier")
    for variable in model.trainable_variables:
        variable.assign(random.normal(0, 0.2, variable.shape))
    report = export(model, tmp_path / "int8", ["onnx"], quantize="int8", progress=False)
    figures = report["onnx"].behavior
    assert f"{figures['top_share']:.1%}" in str(report)
    assert "same class" in str(report)
    assert "token" not in str(report)
    assert 0 < figures["divergence"] < LIMITS["int8"].classes / 3
    verified = verify_bundle(tmp_path / "int8")
    assert verified["onnx"].behavior == pytest.approx(figures)
    assert verified.tolerance == report.tolerance == LIMITS["int8"].change

    def smaller(arrays):
        (name,) = [each for each in arrays if "logits_of_classes" in each and each.endswith(".scale")]
        arrays[name] = arrays[name] * np.float32(0.72)

    faulty(tmp_path / "int8", tmp_path / "faulty", smaller)
    with pytest.raises(QuantizationError, match="onnx, int8: the distributions of classes diverge by"):
        verify_bundle(tmp_path / "faulty")
