"""Generated probes reach what layers say of inputs, other sizes and other regions of values; a user's come before them."""

import keras
import numpy as np
import pytest
from keras import layers, ops

from keras_transformer.export import OptionsError, ParityError, export
from keras_transformer.export.data.array_spec import ArraySpec
from keras_transformer.export.spec.functional import functional_spec
from keras_transformer.export.spec.functional_form import functional_form
from keras_transformer.export.spec.probes import longest_sizes, num_elements
from keras_transformer.export.spec.probing import further

pytestmark = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the exporter's own process")


@keras.saving.register_keras_serializable(package="export_tests")
class Called(layers.Layer):
    """A function as a layer."""

    def __init__(self, function, **options):
        super().__init__(**options)
        self.function = function

    def call(self, inputs):
        return self.function(inputs)


def model_of(function, shape, dtype="float32"):
    x = keras.Input(shape, dtype=dtype, name="x")
    return keras.Model(x, Called(function)(x))


def signature_of(model, **options):
    return functional_spec(model, **options).signatures["serve"]


def values(signature, name="x"):
    """All values of an input, of the first probes and of the further ones."""
    return [
        np.concatenate([each.inputs[name].ravel() for each in part]) for part in (signature.probes, signature.further)
    ]


def test_pictures_are_drawn_as_the_layer_that_scales_them_says():
    x = keras.Input((8, 8, 3), name="x")
    for scaled in (
        layers.Rescaling(1 / 255)(x),
        layers.Rescaling(1 / 127.5, offset=-1)(layers.RandomFlip()(x)),
        ops.divide(ops.cast(x, "float32"), 255.0),
        x * (1 / 255),
        x / 127.5 - 1,
        keras.Sequential([keras.Input((8, 8, 3)), layers.Rescaling(1 / 255)])(x),
    ):
        first, others = values(signature_of(keras.Model(x, layers.Flatten()(scaled))))
        assert (first.min(), first.max()) == (0, 255)
        assert 100 < first.mean() < 155
        assert (others.min(), others.max()) == (0, 255)


def test_the_elements_of_the_largest_probe_are_counted():
    spec = ArraySpec("x", "float32", (None, None, None, 3), ("batch", "length", "x_length", None))
    assert num_elements([spec], longest_sizes([spec], 8)) == 5 * (8 * 17) * (8 * 13) * 3


def test_a_model_is_called_on_its_own_inputs():
    """As segmenters of KerasHub call their backbones."""
    x = keras.Input((8, 8, 3), name="x")
    backbone = keras.Model(x, layers.Conv2D(2, 3)(layers.Rescaling(1 / 255)(x)))
    first, _ = values(signature_of(keras.Model(x, layers.Flatten()(backbone(x)))))
    assert (first.min(), first.max()) == (0, 255)


def test_the_range_of_a_layer_that_is_no_graph_is_that_of_the_first_layer_in_it():
    class Classifier(keras.Model):
        def __init__(self):
            super().__init__()
            self.scale, self.head = layers.Rescaling(1 / 255), layers.Dense(2)

        def call(self, images):
            return self.head(layers.Flatten()(self.scale(images)))

    form = functional_form(Classifier(), keras.InputSpec(shape=(None, 4, 4, 3)))
    (name,) = signature_of(form).probes[0].inputs
    assert values(signature_of(form), name)[0].max() == 255


def test_measurements_are_drawn_around_the_means_of_their_normalization():
    x = keras.Input((2,), name="x")
    normal = layers.Normalization(mean=[1000.0, -5.0], variance=[1e4, 0.01])
    signature = signature_of(keras.Model(x, layers.Dense(2)(normal(x))))
    rows = np.concatenate([each.inputs["x"] for each in signature.all_probes if "," not in each.label])
    np.testing.assert_allclose(rows.mean(0), [1000, -5], rtol=0.05)
    np.testing.assert_allclose(rows.std(0), [100, 0.1], rtol=0.3)
    (large,) = (each.inputs["x"] for each in signature.further if each.label == "batch=2, large")
    assert large[:, 0].min() > 2e4


def test_both_sides_of_each_bound_are_drawn():
    x = keras.Input((3,), name="x")
    bins = layers.Discretization(bin_boundaries=[0.0, 1.0, 10.0])(x)
    (first, _) = values(signature_of(keras.Model(x, layers.CategoryEncoding(4, "multi_hot")(bins))))
    assert set(np.unique(first)) == {-1.0, 0.0, 0.5, 1.0, 5.5, 10.0, 11.0}


def test_integers_are_drawn_up_to_the_depth_of_their_rows():
    x = keras.Input((3,), name="x", dtype="int32")
    for rows in (layers.CategoryEncoding(7, "count")(x), ops.one_hot(x, 7)):
        first, further = values(signature_of(keras.Model(x, rows)))
        assert (first.min(), first.max(), further.min(), further.max()) == (0, 6, 0, 6)


def test_integers_without_a_limit_are_negative_and_large_too():
    (first, further) = values(signature_of(model_of(lambda x: x * 3, (4,), "int32")))
    assert (first.min(), first.max()) == (0, 1)
    assert further.min() < -500
    assert further.max() > 500
    assert values(signature_of(model_of(lambda x: ops.cast(x, "float32"), (4,), "uint8")))[0].max() == 255


def test_floats_are_drawn_from_several_regions():
    signature = signature_of(model_of(lambda x: x * 2, (16, 16, 3)))
    found = {each.label.partition(", ")[2]: np.abs(each.inputs["x"]) for each in signature.further}
    assert found["large"].max() > 90
    assert found["tiny"].ravel()[::2].max() < 2e-4
    assert found["tiny"].ravel()[1::2].max() > 2
    assert found["zeros"].max() == 0
    assert (found["constant"] == found["constant"][:, :1, :1, :1]).all()
    assert (found["bytes"] == np.rint(found["bytes"])).all()
    assert found["bytes"].max() == 255
    for each in signature.further:
        np.testing.assert_array_equal(next(iter(each.outputs.values())), 2 * each.inputs["x"])


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_images_that_are_resized_between_pixels_have_large_values(tmp_path, interpolation):
    x = keras.Input((16, 16, 3), name="x")
    y = layers.LayerNormalization()(layers.UpSampling2D(3, interpolation=interpolation)(x))
    model = keras.Model(x, layers.Conv2D(2, 3)(y))
    assert values(signature_of(model))[1].max() == 255
    report = export(model, tmp_path / "bundle", ["tflite", "onnx"], progress=False)
    assert report.artifacts.keys() == {"tflite", "onnx"}


def test_sizes_are_powers_of_two_and_one_beside_them():
    inputs = keras.Input((None, 3), name="x")
    signature = signature_of(keras.Model(inputs, layers.Dense(2)(inputs)))
    sizes = {each.inputs["x"].shape[:2] for each in signature.all_probes}
    assert {batch for batch, _ in sizes} == {1, 2, 3, 4, 5, 7, 8, 16, 64}
    assert {length for _, length in sizes} >= {1, 5, 7, 8, 15, 16, 17, 32, 33, 131}
    assert (64, 64) in sizes
    assert signature.not_shown == []


def test_a_large_model_has_fewer_rows():
    x = keras.Input((256, 256, 3), name="x")
    model = keras.Model(x, layers.Conv2D(64, 16, strides=16)(x))
    rows = [len(each.inputs["x"]) for each in signature_of(model).further]
    assert sum(rows) <= 15
    assert max(rows) >= 7
    x = keras.Input((None, 256), name="x")
    signature = signature_of(keras.Model(x, layers.Dense(256)(x)))
    assert "batch=64, length=64" not in {each.label for each in signature.further}


def test_probes_of_a_user_come_before_generated_ones():
    x = keras.Input((None, 3), name="x")
    signature = signature_of(keras.Model(x, layers.Dense(2)(x)), probes=[{"x": np.ones((6, 20, 3))}, {"length": 50}])
    assert [each.label for each in signature.probes] == ["batch=6, length=20", "batch=2, length=50"]
    np.testing.assert_array_equal(signature.probes[0].inputs["x"], np.ones((6, 20, 3), "float32"))
    assert {"batch=1, length=5", "batch=5, length=17", "batch=1, length=131", "batch=8, length=1"} <= {
        each.label for each in signature.further
    }


def test_sizes_that_the_model_does_not_take_are_left_out_beside_those_of_a_user():
    def in_sevens(x):
        return ops.reshape(ops.reshape(x, (ops.shape(x)[0], -1, 7, 3)), ops.shape(x))

    model = model_of(in_sevens, (None, 3))
    rows = np.random.default_rng(0).normal(size=(3, 28, 3))
    signature = signature_of(model, probes=[{"x": rows}, {"length": 14}])
    lengths = {each.inputs["x"].shape[1] for each in signature.further}
    assert lengths >= {7, 21, 28}
    assert all(length % 7 == 0 for length in lengths)
    assert {len(each.inputs["x"]) for each in signature.further} >= {1, 5, 8}
    assert "batch=5, length=17: the model itself fails there" in signature.not_shown


def test_values_that_the_model_does_not_take_are_left_out():
    signature = signature_of(model_of(lambda x: ops.log(ops.abs(x)), (4,)))
    assert signature.not_shown == ["batch=1, zeros: the model itself is not finite there"]
    signature = signature_of(model_of(ops.sqrt, (4,)), probes=[{"x": np.full((3, 4), 9.0)}])
    np.testing.assert_array_equal(signature.probes[0].outputs["output"], np.full((3, 4), 3.0))
    assert all(np.isfinite(each.outputs["output"]).all() for each in signature.further)
    assert "batch=5: the model itself is not finite there" in signature.not_shown


def test_sizes_that_a_window_does_not_fit_into_are_left_out():
    signature = signature_of(model_of(keras.layers.SeparableConv1D(4, 5), (None, 3)))
    assert "batch=2, length=4, constant: the model itself fails there" in signature.not_shown
    assert all(each.inputs["x"].shape[1] >= 5 for each in signature.further)


def test_sizes_for_which_a_pooling_ends_the_process_are_left_out():
    signature = signature_of(model_of(keras.layers.MaxPooling1D(5, strides=1), (None, 3)))
    assert "batch=2, length=4, constant: the model itself fails there" in signature.not_shown
    with pytest.raises(ValueError, match=r"the window \(5,\) of layer .* does not fit into \(1, 4, 3\)"):
        signature.function({"x": np.ones((1, 4, 3), "float32")})


def test_a_window_within_a_layer_of_ones_own_is_found_before_it_is_computed():
    @keras.saving.register_keras_serializable("test_probes")
    class Within(keras.layers.Layer):
        def build(self, shape):
            self.convolution = keras.layers.Conv1D(2, 4, strides=4)

        def call(self, x):
            return self.convolution(x)

        def compute_output_spec(self, x):
            return keras.KerasTensor((x.shape[0], None, 2), "float32")

    signature = signature_of(model_of(Within(), (None, 3)))
    with pytest.raises(ValueError, match=r"the window \(4,\) of layer .* does not fit into \(1, 3, 3\)"):
        signature.function({"x": np.ones((1, 3, 3), "float32")})


def test_a_column_is_added_to_a_square_matrix_as_predict_adds_it():
    """As value and advantages of a dueling network: Keras takes the column for a bias where it is computed eagerly."""
    x = keras.Input((4,), name="x")
    model = keras.Model(x, keras.ops.add(x, keras.ops.mean(x, axis=1, keepdims=True)))
    array = np.arange(16, dtype="float32").reshape(4, 4)
    found = signature_of(model).function({"x": array})
    np.testing.assert_array_equal(next(iter(found.values())), array + array.mean(axis=1, keepdims=True))


def test_sizes_of_which_a_model_returns_gigabytes_are_left_out(monkeypatch):
    """Larger ones are not even computed."""
    computed = []

    def pairs(x):
        computed.append(ops.size(x) if None not in x.shape else 0)
        return x[:, :, None] - x[:, None, :]

    monkeypatch.setattr(further, "_MOST_RESULTS", 2**12)
    signature = signature_of(model_of(pairs, (None, 3)))
    assert "batch=64, length=64: the model itself returns more than 67 million numbers there" in signature.not_shown
    assert all(output.size <= 2**12 for each in signature.further for output in each.outputs.values())
    assert 64 * 64 * 3 not in map(int, computed)
    assert 16 * 15 * 3 not in map(int, computed)


def test_many_rows_have_no_length_of_one():
    model = model_of(lambda x: x * 2.0, (None, None, 3))
    sizes = [each.inputs["x"].shape[:3] for each in signature_of(model).further]
    assert {16, 64} <= {batch for batch, *_ in sizes}
    assert all(min(lengths) > 1 for batch, *lengths in sizes if batch >= 16)


def test_values_at_which_the_model_nearly_overflows_are_left_out():
    signature = signature_of(model_of(lambda x: x**16, (4,)))
    assert signature.not_shown == ["batch=2, large: the model itself nearly overflows there"]


def test_a_size_from_tracing_is_found_beside_probes_of_one_size(tmp_path):
    model = model_of(lambda x: x / float(x.shape[1] or 20), (None, 3))
    with pytest.raises(ParityError, match="differs from Keras"):
        export(model, tmp_path / "bundle", ["tflite"], probes=[{"length": 20}], progress=False)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"x": np.ones((2, 4))}, "a dict"),
        (np.ones((2, 4)), "a ndarray"),
        ([np.ones((2, 4))], "a list with an element that is no dict"),
    ],
)
def test_probes_of_another_type_show_the_argument(tmp_path, given, found):
    model = keras.Sequential([keras.Input((4,), name="x"), layers.Dense(2)])
    with pytest.raises(OptionsError, match=r"such as probes=\[\{'x': x\}\]. Received: " + found):
        export(model, tmp_path / "bundle", probes=given, progress=False)


def test_only_the_first_probes_are_kept_in_a_bundle(tmp_path):
    from keras_transformer.export.bundle.probe_files import read_probes

    model = keras.Sequential([keras.Input((4,), name="x"), layers.Dense(2)])
    report = export(model, tmp_path / "bundle", ["onnx"], progress=False)
    assert [len(each.inputs["x"]) for each in read_probes(tmp_path / "bundle")["serve"]] == [1, 5]
    assert report["onnx"].probes == 12
