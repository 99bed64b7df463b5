"""Data of evaluations and calibrations, before anything is written."""

import numpy as np
import pytest

from keras_transformer.export import Evaluation, FullInt8, QuantizationError
from keras_transformer.export.data.array_spec import ArraySpec
from keras_transformer.export.data.export_spec import ExportSpec, Probe, Signature
from keras_transformer.export.writing.data_checks import check_data, with_fitting_batches

PIXELS = np.random.default_rng(0).integers(0, 256, (12, 4)).astype("float32")


def spec_of(rows=None, most=255.0, evaluation=None):
    """The spec of a model of four numbers and three classes, whose probes go from 0 to `most`."""
    x = ArraySpec("pixels", "float32", (rows, 4), ("batch" if rows is None else None, None))
    probe = Probe({"pixels": np.array([[0, 1, 2, most]], "float32")}, "one", {"classes": np.zeros((1, 3), "float32")})
    return ExportSpec({"serve": Signature(lambda tensors: tensors, (x,), [probe])}, evaluation=evaluation)


def test_calibration_of_scaled_pixels_is_refused_where_the_model_scales_them():
    with pytest.raises(QuantizationError, match="'pixels' go from 0 to 1, and the model takes pixels from 0 to 255"):
        check_data(spec_of(), [None, FullInt8(PIXELS / PIXELS.max())])
    check_data(spec_of(), [FullInt8(PIXELS)])
    check_data(spec_of(most=6.5), [FullInt8(PIXELS / 255)])


@pytest.mark.parametrize(
    ("labels", "message"),
    [([0, 1, 2, 3] * 3, "a label is 3; the outputs have 3 classes"), ([-7] * 12, "a label is -7")],
)
def test_labels_of_other_classes_are_refused(labels, message):
    with pytest.raises(QuantizationError, match=message):
        check_data(spec_of(evaluation=Evaluation([PIXELS], [labels])), [])


@pytest.mark.parametrize("labels", [np.arange(12) % 3, np.eye(3)[np.arange(12) % 3]])
def test_an_evaluation_has_the_rows_that_a_signature_takes(labels):
    evaluation = Evaluation([{"pixels": PIXELS[:8]}, {"pixels": PIXELS[8:]}], [labels[:8], labels[8:]])
    found = with_fitting_batches(spec_of(rows=2, evaluation=evaluation)).evaluation
    assert [each["pixels"].shape for each in found.inputs] == [(2, 4)] * 6
    np.testing.assert_array_equal(np.concatenate([each["pixels"] for each in found.inputs]), PIXELS)
    np.testing.assert_array_equal(np.concatenate(found.labels), labels)
    check_data(spec_of(rows=2, evaluation=found), [])


def test_batches_that_cannot_be_cut_stay():
    evaluation = Evaluation([PIXELS])
    assert with_fitting_batches(spec_of(rows=5, evaluation=evaluation)).evaluation.inputs[0] is PIXELS
    assert with_fitting_batches(spec_of(evaluation=evaluation)).evaluation is evaluation
