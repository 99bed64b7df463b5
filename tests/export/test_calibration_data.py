"""Calibration data as batches of what a signature takes."""

import numpy as np
import pytest

from keras_transformer.export import QuantizationError
from keras_transformer.export.data.array_spec import ArraySpec
from keras_transformer.export.data.manifest import Manifest
from keras_transformer.export.quantization.calibration_data import bundle_batches, calibration_batches
from keras_transformer.export.tflite.quantization.calibrate import taken

X = ArraySpec("x", "float32", (None, 3), ("batch", None))
ROWS = np.random.default_rng(0).normal(size=(70, 3))


def test_many_rows_are_cut_into_batches_of_the_type_of_the_input():
    batches = calibration_batches((ROWS, np.zeros(70)), [X])
    assert [len(each["x"]) for each in batches] == [16, 16, 16, 16, 6]
    np.testing.assert_array_equal(np.concatenate([each["x"] for each in batches]), ROWS.astype("float32"))


@pytest.mark.parametrize(("rows", "wanted"), [(9, 2), (4, 1), (1, 1)])
def test_a_fixed_number_of_rows_is_kept(rows, wanted):
    batches = calibration_batches(ROWS[:rows], [ArraySpec("x", "float32", (4, 3), (None, None))])
    assert [each["x"].shape for each in batches] == [(4, 3)] * wanted
    np.testing.assert_array_equal(batches[0]["x"], ROWS[np.arange(4) % rows].astype("float32"))


def test_an_axis_of_something_else_is_not_cut():
    steps = ArraySpec("x", "float32", (None, 3), ("time", None))
    assert [each["x"].shape for each in calibration_batches([ROWS], [steps])] == [(70, 3)]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "are empty"),
        (np.zeros((0, 3)), "are empty"),
        (np.full((8, 3), 2.5), "are constant: 'x' is 2.5 throughout"),
        ({"x": np.full((8, 3), 2.5)}, "are constant"),
        (np.where(np.arange(70)[:, None] == 41, np.nan, ROWS), "have NaN or infinity in 'x'"),
        (ROWS[:, :2], r"do not fit the model: input 'x': expected float32 \(batch, 3\)"),
        ([{"y": ROWS}], "do not fit the model: a batch has"),
    ],
)
def test_data_that_say_nothing_are_refused(data, message):
    with pytest.raises(QuantizationError, match=message):
        calibration_batches(data, [X])


def test_data_of_a_language_model_are_dicts_for_any_of_its_signatures():
    manifest = Manifest({}, {}, tolerance=1e-5, generation={"vocabulary_size": 8})
    batches = [{"token_ids": np.ones((1, 3))}, {"cache": np.ones(2)}]
    assert bundle_batches(iter(batches), manifest) == batches
    for data in (np.ones((2, 3)), [np.ones(3)], np.ones):
        with pytest.raises(QuantizationError, match="of a language model are dicts"):
            bundle_batches(data, manifest)


def test_rows_of_an_example_go_to_signatures_of_fixed_rows():
    """As `static` adds them beside those of any number."""
    x = np.arange(10.0).reshape(5, 2)

    def of(*sizes):
        return {"x": sizes}

    assert [part["x"].tolist() for part in taken(of(-1, 2), {"x": x})] == [x.tolist()]
    assert [part["x"].tolist() for part in taken(of(1, 2), {"x": x})] == [[row] for row in x.tolist()]
    assert [part["x"].tolist() for part in taken(of(2, -1), {"x": x})] == [x[:2].tolist(), x[2:4].tolist()]
    assert list(taken(of(1, 3), {"x": x})) == []
    assert list(taken(of(), {"x": x})) == []
    assert list(taken(of(1, 2), {"y": x})) == []
