"""The example of kernel regression, as it stands."""

import re

import keras
import numpy as np
import pytest

from keras_transformer.utils.serialization import load_model

pytestmark = pytest.mark.exhaustive


@pytest.fixture(scope="module")
def finished(tmp_path_factory, run_example):
    out = tmp_path_factory.mktemp("out")
    return out, run_example("kernel_regression", "--kernel", "epanechnikov", "--epochs", 60, "--out", out)


def test_learning_the_width_lowers_the_error(finished):
    _, printed = finished
    before, after = (
        [float(figure) for figure in re.search(rf"{when}: width (\S+), error (\S+)", printed).groups()]
        for when in ("before", "after")
    )
    # Noise of 0.5 has a variance of 0.25.
    assert before[0] == 2
    assert after[0] < 1
    assert after[1] < min(0.3 * before[1], 0.05)


def test_all_runtimes_have_the_figure_of_keras(finished):
    _, printed = finished
    figure = re.search(r"after: .*(error \S+)", printed).group(1)
    for backend in ("saved_model", "tflite", "onnx"):
        assert f"{backend}: {figure}" in printed


def test_leaves_the_model_and_its_picture(finished, example_module):
    out, printed = finished
    example = example_module("kernel_regression")
    points, values, queries = example.make_data(seed=0)
    estimate = load_model(out / "model.keras").predict({"query": queries, "key": points, "value": values}, verbose=0)
    assert f"error {example.error(queries, estimate):.4f}" in printed
    picture = keras.utils.img_to_array(keras.utils.load_img(out / "estimate.png"))
    assert np.ptp(picture) > 200
