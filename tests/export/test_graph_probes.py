"""Probes of NaN, of infinities and of the ends of integer types, where a model gives them a meaning."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

from keras_transformer.export import ParityError, export
from keras_transformer.export.bundle.manifest import read_manifest
from keras_transformer.export.spec.functional import functional_spec

pytestmark = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the exporter's own process")


def added(function, dtype="float32", shape=(8,)):
    """The probes that a graph adds to a model of one input, and why others are left out."""
    from keras_transformer.export.graph.traced import TracedModule
    from keras_transformer.export.spec.probing.graph_probes import add_graph_probes

    x = keras.Input(shape, dtype=dtype, name="x")
    spec = functional_spec(keras.Model(x, {"y": function(x)}))
    signature = spec.signatures["serve"]
    before, left = len(signature.further), len(signature.not_shown)
    add_graph_probes(spec, TracedModule(spec))
    return {each.label: each for each in signature.further[before:]}, signature.not_shown[left:]


TELLS_NAN = {
    "isnan": lambda x: ops.where(ops.isnan(x), 0.0, x),
    "itself": lambda x: ops.where(ops.equal(x, x), x, 0.0),
    "nansum": lambda x: ops.nansum(x, axis=-1),
    "nanmean": lambda x: ops.nanmean(x, axis=-1),
}


@pytest.mark.parametrize("name", TELLS_NAN)
def test_nan_is_drawn_where_the_model_tells_it_from_numbers(name):
    (probe,) = added(TELLS_NAN[name])[0].values()
    x, y = probe.inputs["x"], probe.outputs["y"]
    assert probe.label == "batch=5, NaN"
    assert np.isnan(x[-1]).all()
    assert 0 < np.isnan(x[:-1]).mean() < 0.6
    assert np.isfinite(y[:-1]).all()


def test_infinities_are_drawn_where_the_model_tells_them_from_numbers():
    found, _ = added(ops.nan_to_num)
    assert list(found) == ["batch=5, NaN", "batch=5, infinities"]
    values = found["batch=5, infinities"].inputs["x"]
    assert np.isposinf(values).any()
    assert np.isneginf(values).any()
    assert not np.isnan(values).any()


def test_nothing_is_drawn_where_the_model_tells_nothing():
    assert added(lambda x: ops.where(x > 0, ops.exp(x), 0.0)) == ({}, [])
    assert added(lambda x: ops.maximum(x, 0.0) + ops.softmax(x)) == ({}, [])


def test_nothing_is_drawn_where_nan_becomes_an_integer():
    def as_bytes(x):
        return ops.where(ops.isfinite(x), 1.0, -1.5) + ops.cast(ops.cast(ops.clip(x, -128, 127), "int8"), "float32")

    assert added(as_bytes) == ({}, [])
    assert list(added(lambda x: ops.cast(ops.where(ops.isnan(x), 3.0, x), "int32"))[0]) == ["batch=5, NaN"]


def test_a_region_of_which_nothing_is_shown_is_named():
    found, left = added(lambda x: ops.sum(ops.where(ops.isfinite(x), x, x * 2.0)))
    assert found == {}
    assert left == [
        "batch=5, NaN: the model itself is not finite there",
        "batch=5, infinities: the model itself is not finite there",
    ]


class FiniteWhenCompiled(layers.Layer):
    """As a ReLU that some processors fuse with the product before it: only the compiled function loses NaN."""

    def call(self, x):
        return x if tf.executing_eagerly() else ops.where(ops.isnan(x), 0.0, x)


def test_numbers_that_keras_itself_does_not_define_are_left_out(tmp_path):
    x = keras.Input((8,), name="x")
    model = keras.Model(x, {"known": ops.where(ops.isnan(x), 0.0, x), "raw": FiniteWhenCompiled()(x)})
    report = export(model, tmp_path / "bundle", ["saved_model"], progress=False)
    assert report.domain[-1] == (
        "not shown: batch=5, NaN: the model itself is finite in another place there when it is compiled"
    )


def test_the_ends_of_the_type_are_drawn_where_integers_are_only_compared_and_moved():
    ends = [np.iinfo("int32").min, -1, 0, 1, np.iinfo("int32").max]
    for function in (
        lambda x: ops.cast(ops.maximum(x, 3), "float32"),
        lambda x: ops.where(x > 5, ops.flip(x, axis=-1), 7),
        lambda x: ops.cast(ops.equal(x, 3), "float32") * 2.0,
    ):
        found, _ = added(function, "int32")
        assert list(found) == ["batch=5, the ends of the type"]
        assert np.unique(found["batch=5, the ends of the type"].inputs["x"]).tolist() == ends
    for function in (
        lambda x: x * 2,
        lambda x: ops.sum(x, axis=-1),
        lambda x: ops.cast(ops.cast(x, "float32") * 2.0, "int32"),
        lambda x: ops.cos(ops.cast(x, "float32")),
        lambda x: ops.cast(x, "int8"),
        layers.Lambda(lambda x: ops.broadcast_to(1.0, ops.maximum(x[0, :2], 1)), output_shape=(8,)),
        lambda x: ops.take(ops.ones((9, 2)), ops.clip(x, 0, 8) + 0, axis=0),
    ):
        assert added(function, "int32") == ({}, [])


def sensors():
    """A model of measurements some of which are missing."""
    x = keras.Input((6,), name="measured")
    missing = ops.isnan(x)
    known = layers.Concatenate()([ops.where(missing, 0.0, x), ops.cast(missing, "float32")])
    return keras.Model(x, {"score": layers.Dense(3, activation="relu")(known)})


@pytest.mark.parametrize("format", ["saved_model", "tflite", "onnx"])
def test_missing_values_are_compared(tmp_path, format):
    keras.utils.set_random_seed(0)
    report = export(sensors(), tmp_path / "bundle", [format], progress=False)
    domain = read_manifest(tmp_path / "bundle").domain["serve"]
    assert domain.not_finite == {"measured": ("NaN",)}
    assert report.domain[0].startswith("compared for measured from -")
    assert ", NaN; batch 1" in report.domain[0]
    assert ", NaN</td>" in (tmp_path / "bundle" / "report.html").read_text()


def test_a_file_that_takes_nan_for_a_number_is_refused(tmp_path, monkeypatch):
    """Its IsNan is always false."""
    from keras_transformer.export.onnx.runtime import OnnxRuntime

    own = OnnxRuntime.__call__

    def without_check(self, inputs):
        return own(self, {name: np.nan_to_num(each, nan=0.5) for name, each in inputs.items()})

    monkeypatch.setattr(OnnxRuntime, "__call__", without_check)
    with pytest.raises(ParityError, match="probe batch=5, NaN"):
        export(sensors(), tmp_path / "bundle", ["onnx"], progress=False)
