"""The report and the manifest say for which values and sizes files were compared; a call beyond them is warned of."""

import json
import warnings

import keras
import numpy as np
import pytest
from keras import layers

from keras_transformer.export import load
from keras_transformer.export.bundle.manifest import read_manifest
from keras_transformer.export.data.checks import IncompleteError
from keras_transformer.export.data.domain import Domain
from keras_transformer.export.data.export_spec import Coverage
from keras_transformer.export.data.report import Report

pytestmark = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the exporter's own process")


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A bundle of pictures and names, and its report."""
    from keras_transformer.export import export

    folder = tmp_path_factory.mktemp("domain") / "bundle"
    pixels, mask = keras.Input((4, 4, 1), name="pixels"), keras.Input((3,), name="mask", dtype="bool")
    flat = layers.Flatten()(layers.Rescaling(1 / 255)(pixels))
    scores = layers.Dense(3)(flat) * keras.ops.cast(mask, "float32")
    return folder, export(keras.Model([pixels, mask], scores), folder, ["onnx"], progress=False)


def test_the_manifest_has_the_ranges_and_the_sizes(exported):
    folder, _ = exported
    domain = read_manifest(folder).domain["serve"]
    assert domain.ranges == {"pixels": (0.0, 255.0)}
    assert domain.sizes == {"batch": (1, 2, 3, 4, 5, 7, 8, 16, 64)}
    assert json.loads((folder / "manifest.json").read_text())["domain"]["serve"]["ranges"] == {"pixels": [0.0, 255.0]}


def test_the_report_says_it(exported):
    folder, report = exported
    line = "compared for pixels from 0 to 255; batch 1, 2, 3, 4, 5, 7, 8, 16, 64"
    assert report.domain == [line]  # Nothing branches.
    assert line in str(report).splitlines()
    assert Report.from_dict(report.to_dict()).domain == report.domain
    page = (folder / "report.html").read_text()
    assert "What was compared" in page
    assert "1, 2, 3, 4, 5, 7, 8, 16, 64" in page


@pytest.mark.parametrize("isolated", [False, True])
def test_a_call_beyond_it_is_warned_of_once(exported, isolated):
    folder, _ = exported
    model = load(folder, check_domain=True, isolated=isolated)
    inside = {"pixels": np.full((2, 4, 4, 1), 200, "float32"), "mask": np.ones((2, 3), bool)}
    beyond = {"pixels": np.full((90, 4, 4, 1), -7, "float32"), "mask": np.ones((90, 3), bool)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model(inside)
    with pytest.warns(
        UserWarning, match="pixels from -7 to -7 and batch 90: the onnx file was compared with Keras for"
    ):
        model(beyond)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model(beyond)
        load(folder, isolated=isolated)(beyond)


def test_what_is_not_shown_is_named():
    left, coverage = ("length=5: the model itself fails there", "length=7: so"), Coverage(3, 2, ("Maximum of 'norm'",))
    domain = Domain({}, {"length": (1, 2)}, left, coverage, ("input 'mask' is not read for any output",))
    assert domain.lines() == [
        "compared for length 1, 2",
        "2 of 3 branches take both sides; not Maximum of 'norm'",
        "input 'mask' is not read for any output",
        "not shown: length=5: the model itself fails there, and 1 more",
    ]
    assert Domain.from_dict(domain.to_dict(), "serve") == domain


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"ranges": {"x": [1.0]}, "sizes": {}},
        {"ranges": {"x": [1.0, "2"]}, "sizes": {}},
        {"ranges": {}, "sizes": {"batch": []}},
        {"ranges": {}, "sizes": {"batch": [0]}},
        {"ranges": {}, "sizes": {"batch": [5, 1]}},
        {"ranges": {}, "sizes": {}, "not_shown": [1]},
        {"ranges": {}, "sizes": {}, "without_effect": "mask"},
        {"ranges": {}, "sizes": {}, "coverage": {"count": 1, "reached": 1}},
    ],
)
def test_a_wrong_record_is_refused(record):
    with pytest.raises(IncompleteError, match="domain of signature 'serve'"):
        Domain.from_dict(record, "serve")


def branches(function, shape=(6,), **options):
    """The coverage of a function by the probes of a model of it."""
    from keras_transformer.export.graph.traced import TracedModule
    from keras_transformer.export.spec.functional import functional_spec
    from keras_transformer.export.verification.rounding import measure_rounding

    x = keras.Input(shape, name="x")
    spec = functional_spec(keras.Model(x, function(x)), **options)
    measure_rounding(TracedModule(spec), spec)
    return spec.signatures["serve"].coverage


def test_both_sides_of_branches_are_reached():
    ops = keras.ops
    assert branches(lambda x: ops.where(x > 0.5, ops.floor(x), ops.maximum(-x, 0.1))) == Coverage(4, 4)
    # Normal numbers alone do not reach it.
    assert branches(lambda x: ops.minimum(x, 20.0) + ops.relu(x)) == Coverage(2, 2)
    of_shape = layers.Lambda(lambda x: ops.relu(x) + ops.maximum(ops.cast(ops.shape(x)[0], "float32"), 0.5))
    assert branches(of_shape) == Coverage(1, 1)


def test_what_no_probe_reaches_is_named():
    clipped = layers.Lambda(lambda x: keras.ops.minimum(keras.ops.relu(x), 500.0), name="clipped")
    assert branches(clipped) == Coverage(2, 1, ("Minimum of 'clipped'",))
