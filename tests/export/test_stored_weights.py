"""Every weight in a written file is the Keras variable's; planted faults are found and named."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from keras_transformer.export.verification.stored_weight import StoredWeight
from keras_transformer.export.verification.weight_images import difference, is_image, is_rows_of

WORKER = pathlib.Path(__file__).with_name("weights_worker.py")
FORMATS = ("saved_model", "tflite", "onnx")
CLEAN = (
    "encoder",
    "decoder",
    "batch_norm",
    "vit",
    "dinov2",
    "t5",
    "mixtral",
    "retnet",
    "recurrent",
    "rescaled",
    "fresh",
)
# Converters evaluate the factors of batch normalization, cut or gather tables of biases, multiply weights by constants, and
# leave out zeros.
COMPUTED = ("batch_norm", "t5", "recurrent", "rescaled", "fresh")
FAULTS = ("negated", "scaled", "heads_swapped", "exchanged", "positions_cut", "one_step", "query_scaled")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    directory = tmp_path_factory.mktemp("weights")
    environment = os.environ | {"KERAS_BACKEND": "tensorflow"}
    with open(directory / "log", "w") as log:
        subprocess.run([sys.executable, WORKER, directory], stdout=log, stderr=log, env=environment, check=False)
    if not (directory / "results.json").exists():
        pytest.fail((directory / "log").read_text()[-3000:])
    return json.loads((directory / "results.json").read_text())


@pytest.mark.slow
@pytest.mark.parametrize("name", CLEAN)
@pytest.mark.parametrize("format", FORMATS)
def test_clean_file_has_every_weight(results, name, format):
    found = results["clean"][name][format]
    assert "error" not in found, found["message"]
    # The mask of a decay, which the simplifier of ONNX evaluates.
    assert not [each for each in found["unaccounted"] if "Less" not in each]
    assert found["equal"] + len(found["computed"]) == results["clean"][name]["read"]
    if format == "saved_model" or name not in COMPUTED:
        assert not found["computed"]


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("format", FORMATS)
def test_planted_fault_is_named(results, fault, format):
    found = results["faults"][fault][format]
    assert found.get("error") in results["faults"][fault]["changed"], found
    if fault == "negated" and format != "tflite":
        assert found["index"] == [17, 3]


def test_image_is_equal_under_an_order_of_axes():
    kernel = np.random.default_rng(0).normal(size=(3, 4, 5)).astype("float32")
    assert is_image(StoredWeight("same", kernel.reshape(12, 5)), kernel)
    assert is_image(StoredWeight("transposed", kernel.reshape(12, 5).T), kernel)
    assert is_image(StoredWeight("swapped", kernel.transpose(1, 0, 2).reshape(4, 15)), kernel)
    assert not is_image(StoredWeight("scrambled", np.sort(kernel.ravel()).reshape(12, 5)), kernel)


def test_one_bit_is_a_difference_that_is_located():
    kernel = np.random.default_rng(0).normal(size=(6, 7)).astype("float32")
    stored = kernel.T.copy()
    stored[4, 2] = np.nextafter(stored[4, 2], np.float32(9))
    assert not is_image(StoredWeight("stored", stored), kernel)
    share, index = difference(StoredWeight("stored", stored), kernel)
    assert index == (2, 4)
    assert share == pytest.approx(41 / 42)


def test_bound_holds_each_element_to_its_own_scale():
    kernel = np.array([[100.0, 0.5], [50.0, -0.25]], "float32")
    stored, bound = kernel + np.array([[0.4, 0], [-0.4, 0]], "float32"), np.array([[0.5, 0.002]])
    assert is_image(StoredWeight("codes", stored, bound=bound), kernel)
    stored[1, 1] += 0.01
    assert not is_image(StoredWeight("codes", stored, bound=bound), kernel)


def test_rows_of_a_table():
    table = np.random.default_rng(0).normal(size=(10, 4)).astype("float32")
    assert is_rows_of(StoredWeight("cut", table[2:7]), table)
    wrong = table[2:7].copy()
    wrong[3, 1] *= -1
    assert not is_rows_of(StoredWeight("cut", wrong), table)
