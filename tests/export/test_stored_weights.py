"""Every weight in a written file is the Keras variable's; planted faults are found and named."""

import json
import pathlib
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from variants import exhaustive_but

from keras_transformer.export.data.weights import StoredWeight
from keras_transformer.export.errors import WeightError
from keras_transformer.export.onnx.weights.stored_weights import stored_weights
from keras_transformer.export.verification.weights.comparison import WeightComparison
from keras_transformer.export.verification.weights.explanations import is_rows_of
from keras_transformer.export.verification.weights.faults import difference
from keras_transformer.export.verification.weights.images import is_image

WORKER = pathlib.Path(__file__).with_name("weights_worker.py")
FORMATS = ("saved_model", "tflite", "onnx")
CLEAN = (
    *("encoder", "decoder", "batch_norm", "t5", "recurrent", "rescaled", "fresh", "vit", "dinov2", "mixtral", "retnet"),
)
# Converters evaluate the factors of batch normalization, cut or gather tables of biases, multiply weights by constants, and
# leave out zeros.
COMPUTED = ("batch_norm", "t5", "recurrent", "rescaled", "fresh")
FAULTS = ("negated", "scaled", "heads_swapped", "exchanged", "positions_cut", "one_step", "query_scaled")


@pytest.fixture(scope="module")
def results(environment_of, tmp_path_factory):
    directory = tmp_path_factory.mktemp("weights")
    environment = environment_of("results")
    with open(directory / "log", "w") as log:
        subprocess.run([sys.executable, WORKER, directory], stdout=log, stderr=log, env=environment, check=False)
    if not (directory / "results.json").exists():
        pytest.fail((directory / "log").read_text()[-3000:])
    return json.loads((directory / "results.json").read_text())


@pytest.mark.slow
@pytest.mark.parametrize("name", exhaustive_but(CLEAN, "decoder", "batch_norm", "t5", "fresh"))
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


class Signature:
    """A double of `TracedConstants`: what a signature reads, of a graph without constants."""

    scalars, computed_with = frozenset(), frozenset()

    def __init__(self, readers):
        self.readers = readers

    def values(self, sizes):
        return iter(())


VARIABLES = {
    "dense/kernel": np.random.default_rng(0).normal(size=(6, 6)).astype("float32"),
    "dense/bias": np.random.default_rng(1).normal(size=48).astype("float32"),
    "head/bias": np.array([0.3, -0.2], "float32"),
}


def comparison(stored):
    """The record of a file with some arrays of no names, or of a variable's own."""
    check = WeightComparison("tflite", VARIABLES, VARIABLES, [Signature({name: {name} for name in VARIABLES})])
    for each in stored:
        check.add(each)
    return check.finish()


def changed(name, change, **words):
    """The arrays of a sound file, but one."""
    return [
        StoredWeight(f"constant_{key}", change(values.copy()), **words)
        if key == name
        else StoredWeight(f"constant_{key}", values)
        for key, values in VARIABLES.items()
    ]


def test_a_sound_file_without_names_has_every_weight():
    assert comparison(changed("dense/kernel", np.transpose)) == {"equal": 3, "computed": [], "unaccounted": []}


def chosen(values):
    """A vector in some rows of a table, and zeros in the others, as a converter writes `where(condition, vector, 0)`."""
    return np.where((np.arange(12) % 3 == 1)[:, None], values, np.float32(0)).reshape(1, 4, 3, -1)


def test_a_vector_that_a_table_repeats_is_found():
    assert comparison(changed("dense/bias", chosen)) == {"equal": 3, "computed": [], "unaccounted": []}


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("dense/bias", lambda values: chosen(values * np.where(np.arange(48) == 5, np.float32(1.0001), np.float32(1)))),
        ("dense/bias", lambda values: np.roll(values, 1)),
        ("dense/bias", lambda values: values.astype("float16").astype("float32")),
        ("dense/bias", lambda values: np.float32(0.37) * values.astype("float16").astype("float32")),
        ("dense/bias", lambda values: values * np.float32(1.001)),
        ("dense/bias", lambda values: 0.37 * values * np.where(np.arange(48) == 5, np.float32(1.0001), np.float32(1))),
        ("dense/bias", np.zeros_like),
        ("dense/kernel", np.zeros_like),
        ("head/bias", lambda values: np.nextafter(values, np.float32([9, -0.2]))),
        ("head/bias", lambda values: values.astype("float16").astype("float32")),
    ],
)
def test_a_moved_rounded_or_missing_weight_is_refused(name, change):
    with pytest.raises(WeightError, match=f"'{name}'"):
        comparison(changed(name, change))


def test_a_weight_with_its_own_name_and_shape_may_not_be_transposed():
    with pytest.raises(WeightError, match="'dense/kernel'"):
        comparison(changed("dense/kernel", np.transpose, origin="dense/kernel", is_named_exactly=True))


@pytest.mark.parametrize("operator", ["Conv", "ConvTranspose"])
def test_a_kernel_of_equal_axes_is_read_in_keras_order(tmp_path, operator):
    kernel = np.random.default_rng(2).normal(size=(3, 3, 3, 3)).astype("float32")
    stored = numpy_helper.from_array(kernel.transpose(3, 2, 0, 1), "convolution/kernel")
    ends = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in "xy"]
    node = helper.make_node(operator, ["x", "convolution/kernel"], ["y"])
    onnx.save(helper.make_model(helper.make_graph([node], "g", ends[:1], ends[1:], [stored])), tmp_path / "serve.onnx")

    (found,) = stored_weights(tmp_path, {"serve": "serve.onnx"}, ["convolution/kernel"])

    assert found.is_named_exactly
    np.testing.assert_array_equal(found.values, kernel)
