"""What a comparison does not show is said: outputs that do not vary, quantized files without integers, signs of vectors."""

import html

import keras
import numpy as np
import pytest
from keras import layers

from keras_transformer.export import ParityError, QuantizationError, export, verify_bundle
from keras_transformer.export.bundle.manifest import read_manifest
from keras_transformer.export.data.export_spec import Probe
from keras_transformer.export.verification.references import is_constant

pytestmark = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the exporter's own process")
ULP = 2.0**-23


def probes(*arrays, rounding=0.0):
    moved = {"y": np.array([[rounding]], "float32")}
    return [Probe({}, "", {"y": np.asarray(each, "float32")}, moved) for each in arrays]


def test_an_output_is_constant_where_no_channel_varies_over_rows_and_probes():
    assert is_constant("y", probes([[1, 2, 3]], [[1, 2, 3], [1, 2, 3]]))
    assert not is_constant("y", probes([[1, 2, 3]], [[1, 2, 3], [1, 2.001, 3]]))
    assert is_constant("y", probes([[1, 2, 3]], [[1, 2, 3], [1, 2 + 2 * ULP, 3]]))
    assert not is_constant("y", probes([[1, 2, 3]])), "one row says nothing"
    assert is_constant("y", probes([[-1e9, 2]], [[-1e9, 2]]))
    assert not is_constant("y", [Probe({}, "", {"y": np.array([3, 3])})]), "integers are compared exactly"


def test_an_output_that_varies_by_no_more_than_rounding_is_constant():
    arrays = [[[0.5, 0.1]], [[0.5 + 1e-6, 0.1]]]
    assert not is_constant("y", probes(*arrays, rounding=1e-7))
    assert is_constant("y", probes(*arrays, rounding=1e-6))
    # A rounding that changes a choice moves as far as the output varies.
    assert not is_constant("y", probes([[0.0, 1.0]], [[1.0, 0.0]], rounding=1.0))


@pytest.mark.slow
def test_the_report_and_the_manifest_name_an_output_that_shows_nothing(tmp_path):
    x = keras.Input((6,), name="x")
    untrained = layers.Dense(3, kernel_initializer="zeros", bias_initializer="ones", name="untrained")(x)
    model = keras.Model(x, {"untrained": untrained, "other": layers.Dense(2, name="other")(x)})
    report = export(model, tmp_path / "bundle", formats=["onnx"], progress=False)
    said = [line for line in str(report).splitlines() if "nothing was shown" in line]
    assert said == [
        "output 'untrained' is constant over all probes: nothing was shown; train the model or pass `probes`"
    ]
    record = read_manifest(tmp_path / "bundle").artifact("onnx")
    assert {each.output: each.is_constant for each in record.parity} == {"untrained": True, "other": False}
    assert "nothing was shown: untrained." in (tmp_path / "bundle" / "report.html").read_text()
    assert "'untrained' is constant" in str(verify_bundle(tmp_path / "bundle"))


def without_effect(inputs, outputs, **options):
    """What is said of the inputs of a model."""
    from keras_transformer.export.graph.traced import TracedModule
    from keras_transformer.export.spec.functional import functional_spec
    from keras_transformer.export.verification.rounding import measure_rounding

    spec = functional_spec(keras.Model(inputs, outputs), **options)
    measure_rounding(TracedModule(spec), spec)
    return spec.signatures["serve"].without_effect


def test_an_input_that_moves_nothing_is_named():
    x, mask = keras.Input((6,), name="x"), keras.Input((6,), dtype="bool", name="mask")
    seen = keras.ops.where(mask, x, -1.0)
    hidden = keras.ops.where(keras.ops.logical_or(mask, True), x, -1.0)
    assert without_effect([x, mask], {"seen": seen}) == []
    assert without_effect([x, mask], {"seen": seen, "hidden": hidden}) == [
        "input 'mask' changed nothing in 'hidden' over the probes: nothing was shown of it"
    ]
    # That another output is not computed from it is shown.
    assert without_effect([x, mask], {"seen": seen, "own": x * 2.0}) == []
    unread = {"own": x * 2.0, "ones": keras.ops.cast(keras.ops.logical_or(mask, True), "float32")}
    assert without_effect([x, mask], unread) == ["input 'mask' is not read for any output"], "but a constant one"
    assert without_effect([x], {"own": x * 2.0}) == [], "a constant output says it of one input"


def test_an_input_that_moves_less_than_rounding_is_named():
    x, small = keras.Input((6,), name="x"), keras.Input((6,), name="small")
    assert without_effect([x, small], {"y": keras.ops.tanh(x) + keras.ops.tanh(small) * 1e-12}) == [
        "input 'small' changed nothing in 'y' over the probes: nothing was shown of it"
    ]
    assert without_effect([x, small], {"y": keras.ops.tanh(x) + keras.ops.tanh(small) * 1e-5}) == []


def test_one_probe_is_enough():
    x, small, mask = keras.Input((6,), name="x"), keras.Input((6,), name="small"), keras.Input((6,), name="mask")
    y = keras.ops.tanh(x) * mask + keras.ops.tanh(small) * 1e-12
    arrays = {"x": np.ones((2, 6)), "small": np.arange(12.0).reshape(2, 6), "mask": np.ones((2, 6))}
    arrays["x"][0] = 0.5
    # Of the mask, which has one value, nothing is known.
    assert without_effect([x, small, mask], {"y": y}, probes=[arrays], generates=False) == [
        "input 'small' changed nothing in 'y' over the probes: nothing was shown of it"
    ]


def test_an_index_that_moves_an_output_of_some_probes_only_is_not_named():
    tokens, kinds = (keras.Input((None,), dtype="int32", name=name) for name in ("tokens", "kinds"))

    def from_the_ninth_on(x):
        ninth = keras.ops.arange(keras.ops.shape(x)[1]) > 8
        return x * keras.ops.cast(keras.ops.reshape(ninth, (1, -1, 1)), x.dtype)

    y = layers.Embedding(9, 4)(tokens) + layers.Lambda(from_the_ninth_on)(layers.Embedding(2, 4)(kinds))
    assert without_effect([tokens, kinds], {"y": y}) == []


@pytest.mark.slow
def test_the_report_and_the_manifest_name_an_input_without_effect(tmp_path):
    x, mask = keras.Input((6,), name="x"), keras.Input((6,), dtype="bool", name="mask")
    y = keras.ops.where(keras.ops.logical_or(mask, True), x, -1.0)
    report = export(keras.Model([x, mask], {"y": y}), tmp_path / "bundle", formats=["onnx"], progress=False)
    line = "input 'mask' changed nothing in 'y' over the probes: nothing was shown of it"
    assert line in str(report).splitlines()
    assert read_manifest(tmp_path / "bundle").domain["serve"].without_effect == (line,)
    assert html.escape(line) in (tmp_path / "bundle" / "report.html").read_text()


@pytest.mark.slow
def test_the_difference_of_an_output_near_a_constant_is_a_share_of_how_it_varies(tmp_path):
    keras.utils.set_random_seed(0)
    x = keras.Input((6,), name="x")
    model = keras.Model(x, {"y": layers.Rescaling(1e-3, offset=5.0, name="y")(layers.Dense(4)(x))})
    report = export(model, tmp_path / "bundle", formats=["onnx"], progress=False)
    (parity,) = report["onnx"].parity
    assert 1e-3 < parity.scale < 0.2
    assert parity.ratio == parity.difference / parity.scale


@pytest.mark.slow
def test_a_quantization_that_changes_nothing_is_refused(tmp_path):
    model = keras.Sequential([keras.Input((6,), name="x"), layers.Dense(4), layers.Dense(2)])
    with pytest.raises(
        QuantizationError, match="onnx, int8: no weight was quantized.* the largest of them has 24; take Full"
    ):
        export(model, tmp_path / "bundle", ["onnx"], quantize="int8", progress=False)
    assert not (tmp_path / "bundle").exists()


@pytest.mark.slow
@pytest.mark.parametrize("format", ["tflite", "onnx"])
def test_what_stayed_float_is_said(tmp_path, format):
    dense = [layers.Dense(width, use_bias=False, name=name) for name, width in {"wide": 128, "narrow": 2}.items()]
    model = keras.Sequential([keras.Input((128,), name="x"), *dense])
    report = export(model, tmp_path / "bundle", [format], quantize="int8", progress=False)
    said = "98.5% of the multiplications are of integers, 98.5% of the weights are quantized"  # 128 of 130 columns.
    assert f"{format}: {said}; float: narrow" in str(report).splitlines()
    record = read_manifest(tmp_path / "bundle").artifact(format).integers
    assert record == report[format].integers
    assert record.float_layers == ("narrow",)


@pytest.mark.slow
def test_the_error_of_vectors_names_the_operation_whose_sign_is_free(tmp_path):
    x = keras.Input((4, 4), name="x")
    model = keras.Model(x, {"y": layers.Lambda(lambda x: keras.ops.svd(x)[0], name="factors")(x)})
    with pytest.raises(
        ParityError, match="the vectors of Svd of layer 'factors' have a sign that each library chooses"
    ):
        export(model, tmp_path / "bundle", formats=["onnx"], progress=False)


@pytest.mark.slow
def test_the_error_of_elements_that_are_not_sorted_says_so(tmp_path):
    x = keras.Input((16,), name="x")
    largest = layers.Lambda(lambda x: keras.ops.top_k(x, 5, sorted=False)[0], name="largest")(x)
    message = "the elements of TopKV2 of layer 'largest' are in an order that each library chooses: pass sorted=True"
    with pytest.raises(ParityError, match=message):
        export(keras.Model(x, {"y": largest}), tmp_path / "bundle", formats=["onnx"], progress=False)
    # What does not depend on the order is right.
    total = keras.Model(x, {"y": keras.ops.sum(largest, -1)})
    assert export(total, tmp_path / "total", formats=["onnx"], progress=False)["onnx"].difference < 1e-5
