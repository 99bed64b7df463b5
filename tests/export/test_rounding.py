"""The rounding of a model: how far its outputs move when every operation rounds differently."""

import math

import keras
import numpy as np
import pytest

from keras_transformer.export import ParityError, export
from keras_transformer.export.spec.functional import functional_spec
from keras_transformer.export.verification.comparison import block_maximum

pytestmark = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the exporter's own process")
ULP = 2.0**-23


def measured(model, inputs):
    """The rounding of each output of a model on one probe, and the outputs."""
    from keras_transformer.export.graph.traced import TracedModule
    from keras_transformer.export.verification.rounding import measure_rounding

    spec = functional_spec(model, probes=[inputs])
    measure_rounding(TracedModule(spec), spec)
    (probe,) = spec.signatures["serve"].probes
    return probe.rounding, probe.outputs


def model_of(function, size=64, dtype="float32"):
    x = keras.Input((size,), name="x", dtype=dtype)
    return keras.Model(x, {name: keras.layers.Identity(name=name)(y) for name, y in function(x).items()})


def test_one_operation_moves_by_one_unit():
    x = np.random.default_rng(0).uniform(1.0, 1.9, (3, 64)).astype("float32")
    rounding, outputs = measured(
        model_of(lambda x: {"y": x / 3.0, "moved": x[:, ::-1], "largest": x * 2.0 - x}), {"x": x}
    )
    assert rounding["y"].shape == (3, 1)
    # The largest of 64 elements in 4 draws from one unit, with the rounding of the product itself.
    units = rounding["y"] / (block_maximum(outputs["y"]) * ULP)
    assert (units > 0.7).all()
    assert (units < 1.6).all()
    np.testing.assert_array_equal(rounding["moved"], 0.0)


def test_a_sigmoid_near_0_moves_by_a_unit_of_1(tmp_path):
    """ONNX Runtime's has an error of about 7e-8, and is 0 below -18."""
    x = np.linspace(-17, -6, 192, dtype="float32").reshape(3, 64)
    rounding, _ = measured(model_of(lambda x: {"y": keras.ops.sigmoid(x)}), {"x": x})
    units = rounding["y"] / ULP
    assert (units > 0.7).all()
    assert (units < 1.2).all()
    export(model_of(lambda x: {"y": keras.ops.sigmoid(x - 12.0)}), tmp_path / "bundle", ["onnx"], progress=False)


def test_cancellation_is_amplified_as_it_is():
    # x + 1000 - 1000: the sum rounds to 2**-14, which is 512 units of 1.
    x = np.random.default_rng(0).uniform(1.0, 2.0, (1, 64)).astype("float32")
    rounding, _ = measured(model_of(lambda x: {"y": (x + 1000.3) - 1000.3}), {"x": x})
    assert 0.7 * 1001 * ULP < rounding["y"].item() < 1.6 * 1002 * ULP


def test_solutions_move_as_far_as_their_matrix_is_ill_conditioned():
    matrix = np.array([[[1, 1], [1, 1 + 2.0**-10]]], "float32")
    inputs = {"matrix": keras.Input((2, 2), name="matrix"), "right": keras.Input((2, 1), name="right")}
    model = keras.Model(inputs, keras.ops.solve(inputs["matrix"], inputs["right"]))
    rounding, outputs = measured(model, {"matrix": matrix, "right": np.array([[[1], [2]]], "float32")})
    (moved,), (output,) = rounding.values(), outputs.values()
    share = moved.max() / np.abs(output).max() / ULP
    # The backward error of a matrix of two rows is two units.
    assert 0.1 * np.linalg.cond(matrix[0]) < share < 2.2 * np.linalg.cond(matrix[0])


def test_rows_of_a_matrix_move_as_the_largest_does():
    """The backward error of a factorization is one of the norm: small rows are no more exact than large ones."""
    matrix = np.array([[[2, 1], [1e-4, 3e-4]]], "float32")
    given = keras.Input((2, 2), name="matrix")
    rounding, outputs = measured(keras.Model(given, keras.ops.inv(given)), {"matrix": matrix})
    (moved,), (output,) = rounding.values(), outputs.values()
    share = moved.max() / np.abs(output).max() / ULP
    assert 0.1 * np.linalg.cond(matrix[0]) < share < 2.2 * np.linalg.cond(matrix[0])


def test_all_factors_move():
    x = np.random.default_rng(0).normal(size=(1, 5, 5)).astype("float32")
    inputs = keras.Input((5, 5), name="x")
    q, r = keras.ops.qr(inputs)
    rounding, _ = measured(keras.Model(inputs, {"q": q, "r": r}), {"x": x})
    assert 0.1 * ULP < rounding["q"].max() < 100 * ULP
    assert 0.1 * ULP < rounding["r"].max() < 100 * ULP


def test_frequencies_that_cancel_move_as_the_others_do():
    ones = np.ones((1, 64), "float32")
    rounding, outputs = measured(
        model_of(lambda x: dict(zip(("real", "imaginary"), keras.ops.fft((x, x)), strict=True))), {"x": ones}
    )
    assert np.abs(outputs["real"][0, 1:]).max() == 0.0
    # 64 numbers, both parts of which have noise of sqrt(64 / 8) units, evenly spread.
    deviation = math.sqrt(2 * 64 * 8 / 3)
    assert 2 * deviation * ULP < rounding["real"].item() < 5 * deviation * ULP


@pytest.mark.parametrize("function", [keras.ops.sum, keras.ops.mean, keras.ops.average, keras.ops.nansum])
def test_a_sum_that_cancels_moves_as_its_summands_do(function):
    half = np.random.default_rng(0).normal(size=(16, 32)).astype("float32")
    x = np.concatenate([half, -half], axis=1)
    rounding, outputs = measured(model_of(lambda x: {"y": function(x, axis=1)}), {"x": x})
    share = 1 if function in (keras.ops.sum, keras.ops.nansum) else 64
    assert np.abs(outputs["y"]).max() * share < 1e-5
    # 64 summands of size 1 with noise of sqrt(64 / 8) units, evenly spread; the largest of 16 rows and four draws.
    deviation = math.sqrt(64 * 8 / 3)
    assert deviation * ULP < rounding["y"].item() * share < 6 * deviation * ULP


def test_a_pole_behind_products_that_cancel_moves_as_their_summands_do():
    """The tangent of a product of 1.5 whose summands have a size of 30."""
    from keras_transformer.export.graph.traced import TracedModule
    from keras_transformer.export.verification.rounding import measure_rounding

    random = np.random.default_rng(0)
    x, kernel = (30 * random.normal(size=64)).astype("float32"), random.normal(size=(64, 1)).astype("float32")
    x[0] -= (float(x @ kernel[:, 0]) - 1.5) / kernel[0, 0]
    dense = keras.layers.Dense(1, use_bias=False)
    model = model_of(lambda x: {"y": keras.ops.tan(dense(x))})
    dense.set_weights([kernel])
    spec = functional_spec(model, probes=[{"x": x[None]}])
    traced = TracedModule(spec)
    (probe,) = spec.signatures["serve"].probes
    measure_rounding(traced, spec)
    usual, all_noise = probe.rounding["y"].item(), probe.measure()["y"].item()
    summands = float(np.linalg.norm(x * kernel[:, 0]))
    slope = 1 + probe.outputs["y"].item() ** 2
    assert usual < 2 * 1.5 * math.sqrt(64 / 8) * ULP * slope
    assert 0.2 < all_noise / (math.sqrt(64 / 8) * ULP * summands * slope) < 3


def test_a_sum_of_one_number_rounds_one_way():
    x = np.full((16, 1024), 0.1, "float32")
    x[:, 1::64] = 0.0
    mean = lambda x: {"y": keras.ops.mean(x, axis=1)}  # noqa: E731
    rounding, _ = measured(model_of(mean, 1024), {"x": x})
    assert 64 * 0.1 * ULP < rounding["y"].item() < 130 * 0.1 * ULP
    x = np.random.default_rng(0).uniform(0.05, 0.15, (16, 1024)).astype("float32")
    rounding, _ = measured(model_of(mean, 1024), {"x": x})
    assert 5 * 0.1 * ULP < rounding["y"].item() < 13 * 0.1 * ULP


def test_a_remainder_jumps_where_its_quotient_is_nearly_whole():
    x = np.full((1, 64), 0.6, "float32")
    x[:, 32:] = 0.5
    remainder = lambda x: {"y": keras.ops.mod(x, 0.2)}  # noqa: E731
    rounding, _ = measured(model_of(remainder), {"x": x[:, :32].repeat(2, axis=1)})
    assert 0.19 < rounding["y"].item() < 0.21
    rounding, _ = measured(model_of(remainder), {"x": x[:, 32:].repeat(2, axis=1)})
    assert rounding["y"].item() < 10 * ULP
    rounding, _ = measured(model_of(lambda x: {"y": keras.ops.mod(x, 3.0)}), {"x": np.full((1, 64), 6.0, "float32")})
    assert rounding["y"].item() == 0


def test_an_image_that_is_resized_moves_as_its_pixels_differ():
    pixels = np.random.default_rng(0).integers(0, 2, (1, 16, 16, 4)).astype("float32")
    inputs = keras.Input((16, 16, 4), name="x")
    model = keras.Model(inputs, {"y": keras.ops.image.resize(inputs, (37, 21), interpolation="bilinear")})
    for low, high in ((0, 1), (0, 100), (100, 101)):
        rounding, _ = measured(model, {"x": low + (high - low) * pixels})
        # A coordinate is rounded by up to 16 units, in each direction, and pixels differ by no more than high - low.
        units = rounding["y"].max() / ((high - low) * ULP)
        assert 8 < units < 32 + 1.1 * high
    rounding, _ = measured(model, {"x": np.full((1, 16, 16, 4), 7.3, "float32")})
    assert 7 * 0.5 * ULP < rounding["y"].max() < 8 * 1.1 * ULP


def refined(model, inputs):
    """The rounding of the only output of a model on one probe by noise, and with the error of float32."""
    from keras_transformer.export.graph.traced import TracedModule
    from keras_transformer.export.verification.rounding import measure_rounding

    spec = functional_spec(model, probes=[inputs])
    measure_rounding(TracedModule(spec), spec)
    (probe,) = spec.signatures["serve"].probes
    ((name, by_noise),) = probe.rounding.items()
    return by_noise, probe.measure()[name]


def test_the_error_of_float32_is_one_more_draw():
    x = np.full((1, 64), 2.0**24, "float32")
    odd = lambda x: {"y": (x + 1.0) - x}  # noqa: E731
    by_noise, with_error = refined(model_of(odd), {"x": x})  # Whole numbers, of which noise moves none.
    assert by_noise.item() == 0.0
    assert with_error.item() == 1.0
    x = np.random.default_rng(0).uniform(1.0, 2.0, (1, 64)).astype("float32")
    by_noise, with_error = refined(model_of(lambda x: {"y": (x + 1000.3) - 1000.3}), {"x": x})
    assert by_noise.item() <= with_error.item() < 1.1 * by_noise.item()


def test_an_operation_without_float64_leaves_the_noise_as_it_is():
    x = np.random.default_rng(0).normal(size=(1, 8, 8, 16)).astype("float32")
    inputs = keras.Input((8, 8, 16), name="x")
    resized = keras.ops.image.resize(inputs, (13, 5))  # Its results are of float32.
    by_noise, with_error = refined(keras.Model(inputs, {"y": resized * 3.0 / 7.0}), {"x": x})
    np.testing.assert_array_equal(by_noise, with_error)


def test_masks_and_counts_stay_exact():
    x = np.random.default_rng(0).normal(size=(2, 64)).astype("float32")
    ops = keras.ops

    def masked(x):
        mask = ops.cast(x > 0, "float32")
        return {"sentinel": (1.0 - mask) * -1e9, "count": ops.sum(mask, axis=-1, keepdims=True) / 1.0}

    rounding, outputs = measured(model_of(masked), {"x": x})
    assert set(np.unique(outputs["sentinel"])) == {0.0, -1e9}
    assert max(map(np.max, rounding.values())) == 0


def test_integer_products_stay_exact_and_what_scales_them_rounds():
    x = np.random.default_rng(0).integers(-100, 100, (2, 64)).astype("float32")
    kernel = np.random.default_rng(1).integers(-100, 100, (64, 64)).astype("int8")
    ops = keras.ops

    def quantized(x):
        sums = ops.matmul(ops.cast(x, "int8"), kernel)  # int32
        return {"sums": sums, "scaled": ops.cast(sums, "float32") * 0.3}

    rounding, outputs = measured(model_of(quantized), {"x": x})
    np.testing.assert_array_equal(outputs["sums"], x.astype("int32") @ kernel.astype("int32"))
    np.testing.assert_array_equal(rounding["sums"], 0.0)
    assert (rounding["scaled"] > 0.7 * block_maximum(outputs["scaled"]) * ULP).all()


def test_loops_round_in_each_iteration():
    x = np.random.default_rng(0).uniform(1.0, 2.0, (1, 64)).astype("float32")

    class Steps(keras.layers.Layer):
        def call(self, x):
            # Multiplies and divides 200 times; each iteration adds two roundings.
            step = lambda i, y: (i + 1, y * 1.1 / 1.1)  # noqa: E731
            return keras.ops.while_loop(lambda i, y: i < 200, step, (0, x))[1]

    inputs = keras.Input((64,), name="x")
    rounding, _ = measured(keras.Model(inputs, {"y": Steps(name="y")(inputs)}), {"x": x})
    # 400 independent roundings within one unit: a deviation of 20 / sqrt(3) units, the largest of 256 about 3 times that.
    assert 20 * ULP < rounding["y"].item() < 2 * 70 * ULP


def test_a_graph_that_is_not_the_model_is_no_rounding(tmp_path):
    class Mean(keras.layers.Layer):
        def call(self, x):
            return keras.ops.sum(x, axis=1) / (x.shape[1] or 1)  # The traced length is unknown.

    x = keras.Input((None, 8), name="x")
    with pytest.raises(ParityError, match="saved_model: output 'y' differs from Keras by"):
        export(keras.Model(x, {"y": Mean(name="y")(x)}), tmp_path / "bundle", formats=["saved_model"])


def test_near_ties_are_seen_and_clear_choices_are_not():
    x = np.zeros((16, 64), "float32")
    x[:8, [3, 9]] = 1.0  # Ties.
    x[8:, [3, 9]] = 1.0, 1.0001
    choice = lambda x: {"y": keras.ops.argmax(x / 3.0, axis=-1)}  # noqa: E731
    rounding, outputs = measured(model_of(choice), {"x": x})
    assert outputs["y"].shape == rounding["y"].shape == (16,)
    assert rounding["y"][:8].sum() >= 5
    assert rounding["y"][8:].sum() == 0


@pytest.mark.slow
def test_a_deep_model_needs_no_tolerance_and_a_small_fault_is_refused(monkeypatch, tmp_path):
    # 40 layers amplify rounding to more than the 1e-5 of the scale that shallow models keep to.
    keras.utils.set_random_seed(0)
    x = y = keras.Input((32,), name="x")
    for _ in range(40):
        y = keras.layers.Dense(32, kernel_initializer=keras.initializers.RandomNormal(stddev=0.35))(y)
        y = y + keras.ops.sin(3.0 * y)
    model = keras.Model(x, {"y": keras.layers.Identity(name="y")(y)})
    report = export(model, tmp_path / "bundle", formats=["saved_model"])
    assert report["saved_model"].share <= 1

    from keras_transformer.export.saved_model.runtime import SavedModelRuntime

    run = SavedModelRuntime.__call__
    monkeypatch.setattr(
        SavedModelRuntime,
        "__call__",
        lambda *args: {name: each * np.float32(1 + 5e-2) for name, each in run(*args).items()},
    )
    with pytest.raises(ParityError, match=r"saved_model: output 'y' differs from Keras"):
        export(model, tmp_path / "bundle", formats=["saved_model"])


@pytest.mark.exhaustive
def test_layers_that_repeat_round_each_by_itself(monkeypatch):
    """Twelve blocks that share a function move their output as twelve of their own do, and not as one moved twelve times."""
    from keras_transformer.export.graph.repeated_layers import RepeatedLayers
    from keras_transformer.models import Encoder, Size

    keras.utils.set_random_seed(3)
    model = Encoder(Size(12, 32, 2, 48), vocabulary_size=50)
    tokens = np.random.default_rng(0).integers(0, 50, (3, 11)).astype("int32")
    inputs = {"token_ids": tokens, "padding_mask": np.ones((3, 11), bool)}
    shared, outputs = measured(model, inputs)
    monkeypatch.setattr(RepeatedLayers, "_repeated", lambda *args: [])
    apart, _ = measured(model, inputs)
    (name,) = outputs
    assert apart[name].min() > 0
    ratio = shared[name] / apart[name]
    assert 0.8 < np.median(ratio) < 1.25
    assert np.abs(ratio - 1).max() > 0.01
