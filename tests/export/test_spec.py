"""Default names, axes and probes are correct and deterministic."""

import keras
import numpy as np
import pytest
from keras import layers, ops

from keras_transformer.export import ArraySpec, InvalidModelError
from keras_transformer.export.data.axes import axis_names, output_axes, sizes_of
from keras_transformer.export.graph.operation_origin import layer_of
from keras_transformer.export.spec.functional import check_model, functional_spec
from keras_transformer.export.spec.names import input_names, output_names
from keras_transformer.export.spec.probes import make_probes, user_probes
from keras_transformer.export.spec.vocabulary import integer_limits, longest_sequence
from keras_transformer.vision import NaFlexEmbedding


def spec(name, dtype, shape):
    return ArraySpec(name, dtype, shape, axis_names(name, shape))


@pytest.mark.parametrize(
    "name, shape, expected",
    [
        ("x", (None, 3), ("batch", None)),
        ("token_ids", (None, None), ("batch", "length")),
        ("source_ids", (None, None), ("batch", "source_length")),
        ("frame_noise", (None, None, 3), ("batch", "frame_length", None)),
        ("decoder_padding_mask", (None, None), ("batch", "decoder_length")),
        ("target", (None, None), ("batch", "length")),
        ("images", (None, None, None, 3), ("batch", "height", "width", None)),
        ("images", (None, None, 8, 8, 3), ("batch", "axis_1", None, None, None)),
        ("patches", (None, None, None, 16, 24), ("batch", "images", "windows", None, None)),
        ("patch_grid", (None, None, 2), ("batch", "images", None)),
        ("attention_mask", (None, None, None), ("batch", "length", "length")),
        ("token_ids", (None, None, None), ("batch", "axis_1", "length")),
        ("padding_mask", (None, None, None), ("batch", "axis_1", "length")),
        ("cache", (None, None, 2, 8), ("batch", "length", None, None)),
        ("patches", (None, None, 48), ("batch", "patches", None)),
        ("patch_mask", (None, None), ("batch", "patches")),
        ("x", (None, 4, None), ("batch", None, "axis_2")),
        ("x", (4, 4), (None, None)),
        ("step", (), ()),
    ],
)
def test_dynamic_axes_are_named(name, shape, expected):
    assert axis_names(name, shape) == expected


def test_the_user_names_axes():
    assert axis_names("x", (None, None, 3), {1: "frames"}) == ("batch", "frames", None)
    with pytest.raises(InvalidModelError, match="axis 2 of input 'x'"):
        axis_names("x", (None, None, 3), {2: "frames"})


def test_output_axes_are_found_by_size():
    probes = [({"batch": 1, "length": 5}, (1, 5, 6)), ({"batch": 5, "length": 17}, (5, 17, 18))]
    assert output_axes("y", (None, None, None), probes) == ("batch", "length", "y_axis_2")
    assert output_axes("y", (None, None, 6), probes) == ("batch", "length", None)


def test_inputs_that_share_an_axis_share_its_size():
    inputs = (spec("a", "float32", (None, None)), spec("b", "float32", (None, None)))
    with pytest.raises(InvalidModelError, match="'b' has 4 along axis 'length'"):
        sizes_of(inputs, {"a": np.zeros((1, 3)), "b": np.zeros((1, 4))})


def test_probes_cover_batch_length_and_padding():
    inputs = (spec("token_ids", "int32", (None, None)), spec("padding_mask", "bool", (None, None)))
    probes = make_probes(inputs, {"token_ids": 50})
    shapes = {probe.inputs["token_ids"].shape for probe in probes}
    assert shapes == {(1, 5), (1, 17), (5, 5), (5, 17)}
    masks = [probe.inputs["padding_mask"] for probe in probes]
    assert any(mask.all() for mask in masks)
    padded = [mask for mask in masks if not mask.all()]
    assert {mask.shape for mask in padded} >= {(5, 5), (5, 17)}
    for mask in padded:
        assert mask.dtype == bool
        assert mask.any(axis=-1).all()
        steps = np.diff(mask.astype(int), axis=-1)
        assert (steps[::2] <= 0).all(), "padding of the first and every other row is on the right"
        assert (steps[1::2] >= 0).all(), "of the others it is on the left"
        assert len(mask) == 1 or len(set(mask.sum(-1))) > 1, "rows have different lengths"
    ids = np.concatenate([probe.inputs["token_ids"].ravel() for probe in probes])
    assert ids.min() >= 0
    assert 2 < ids.max() < 50
    again = make_probes(inputs, {"token_ids": 50})
    np.testing.assert_array_equal(probes[2].inputs["token_ids"], again[2].inputs["token_ids"])


def test_probes_stay_within_the_longest_sequence():
    inputs = (spec("token_ids", "int32", (None, None)),)
    shapes = {probe.inputs["token_ids"].shape for probe in make_probes(inputs, {}, longest=8)}
    assert shapes == {(1, 5), (1, 8), (5, 5), (5, 8)}


def test_rates_are_positive():
    values = np.concatenate(
        [probe.inputs["speaking_rate"] for probe in make_probes((spec("speaking_rate", "float32", (None,)),), {})]
    )
    assert values.min() >= 0.5
    assert values.max() <= 2.0
    assert len(set(values)) > 4


def test_image_probes_have_two_sizes_that_are_not_square():
    shapes = {probe.inputs["x"].shape for probe in make_probes((spec("x", "float32", (None, None, None, 3)),), {})}
    assert len(shapes) == 4
    assert all(height != width for _, height, width, _ in shapes)


def test_images_are_of_sizes_that_the_model_takes():
    def halved(x, times):
        for _ in range(times):
            x = keras.layers.Conv2D(4, 3, strides=2, padding="same")(x)
        return x

    images = keras.Input((None, None, 3))
    deep = keras.layers.UpSampling2D(32)(halved(images, 5))
    model = keras.Model(images, keras.layers.Concatenate()([images, deep]))
    signature = functional_spec(model).signatures["serve"]
    assert {probe.inputs["input"].shape[1:3] for probe in signature.probes} == {(64, 96), (96, 64)}
    for probe in signature.probes:
        (found,) = probe.outputs.values()
        np.testing.assert_array_equal(found[..., :3], probe.inputs["input"])

    padded = keras.layers.ZeroPadding2D(1)(deep)
    neither = keras.Model(images, keras.layers.Concatenate()([images, padded]))
    with pytest.raises(InvalidModelError, match="height=48, width=64.*probes"):
        functional_spec(neither)


def test_probes_of_the_user():
    inputs = (spec("x", "float32", (None, None, 2)),)
    sized, given = user_probes(inputs, {}, [{"length": 64}, {"x": np.ones((3, 4, 2))}])
    assert sized.inputs["x"].shape == (2, 64, 2)
    assert given.inputs["x"].dtype == np.float32
    assert given.label == "batch=3, length=4"
    with pytest.raises(InvalidModelError, match="probe 0 has \\['y'\\]"):
        user_probes(inputs, {}, [{"y": 3}])


def test_names_do_not_depend_on_what_was_built_before():
    def build():
        a, b = keras.Input((2,)), keras.Input((2,))
        x = layers.Dense(2)(layers.Concatenate()([a, b]))
        return keras.Model([a, b], [x, layers.Dense(3, name="head")(x), ops.abs(x)])

    for model in (build(), build()):
        assert input_names(model) == ["input_0", "input_1"]
        assert output_names(model) == ["output_0", "head", "output_2"]


def test_names_given_by_hand_are_kept_and_made_identifiers():
    x = keras.Input((2,), name="left-right 2")
    conv = layers.Conv1D(2, 1)(keras.ops.expand_dims(x, 1))
    assert input_names(keras.Model(x, conv)) == ["left_right_2"]
    assert output_names(keras.Model(x, conv)) == ["output"]
    assert output_names(keras.Model(x, {"a": {"b": conv}, "c": x})) == ["a_b", "c"]


def test_integer_limits_come_from_the_embedding_that_is_reached():
    ids, segments, other, floats = (
        keras.Input((None,), dtype=dtype, name=name)
        for name, dtype in (("ids", "int32"), ("segments", "int32"), ("other", "int32"), ("floats", "float32"))
    )
    inner_ids = keras.Input((None,), dtype="int32")
    inner = keras.Model(inner_ids, layers.Embedding(77, 4)(inner_ids))
    x = inner(ops.where(ids > 3, ids, 0)) + layers.Embedding(2, 4)(segments)
    x = x + ops.expand_dims(ops.cast(other, "float32") + floats, -1)
    model = keras.Model([ids, segments, other, floats], x)
    assert integer_limits(model.inputs) == [77, 2, None, None]


def test_grids_of_patches_are_tried_up_to_twice_the_table():
    patches, grid = keras.Input((None, 12)), keras.Input((2,), dtype="int32")
    model = keras.Model([patches, grid], NaFlexEmbedding(8, grid_size=(3, 5))(patches, grid))
    assert integer_limits(model.inputs) == [None, 10]


def test_longest_sequence_is_the_smallest_of_the_layers():
    class Positions(layers.Layer):
        def __init__(self, size):
            super().__init__()
            self.max_sequence_length = size

        def call(self, x):
            return x

    x = keras.Input((None, 4))
    assert longest_sequence(keras.Model(x, Positions(9)(Positions(12)(x)))) == 9
    assert longest_sequence(keras.Model(x, layers.Dense(2)(x))) is None


def test_ops_are_traced_back_to_layers():
    known = {"attention": object(), "block_2": object(), "model": keras.Sequential([keras.Input((1,))])}
    assert layer_of("Erf", "model_1/block_2/attention_1/Erf", known) == "attention"
    assert layer_of("Erf", "model_1/block_2/gelu/Erf", known) == "block_2"
    assert layer_of("Erf", "functional_3/Erf", known) == "functional_3"


def test_what_is_no_functional_model_is_refused():
    class Subclassed(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = layers.Dense(2)

        def call(self, x):
            return self.dense(x)

    subclassed = Subclassed()
    with pytest.raises(InvalidModelError, match="not a Keras model: Dense"):
        check_model(layers.Dense(2))
    with pytest.raises(InvalidModelError, match="not built"):
        check_model(subclassed)
    subclassed(np.ones((1, 3)))
    with pytest.raises(InvalidModelError, match="not functional"):
        check_model(subclassed)
    with pytest.raises(InvalidModelError, match="not built"):
        check_model(keras.Sequential([layers.Dense(2)]))


def test_probes_are_longer_where_the_model_does_not_take_short_ones():
    x = keras.Input((None, 2), name="x")
    frames = keras.layers.Conv1D(3, 30)(x)
    spec = functional_spec(keras.Model(x, frames))
    probes = spec.signatures["serve"].probes
    lengths = {probe.inputs["x"].shape[1] for probe in probes}
    assert {40, 136} <= lengths
    assert min(lengths) == 40
    for probe in probes:
        (found,) = probe.outputs.values()
        assert found.shape == (probe.inputs["x"].shape[0], probe.inputs["x"].shape[1] - 29, 3)


def test_a_probe_that_the_model_does_not_take_says_so():
    x = keras.Input((None, 2), name="x")
    halves = ops.reshape(x, (-1, 999, 2))
    model = keras.Model(x, halves)
    with pytest.raises(InvalidModelError, match=r"fails on the probe batch=1, length=5.*pass `probes`"):
        functional_spec(model)
    spec = functional_spec(model, probes=[{"batch": 1, "length": 1998}])
    assert spec.signatures["serve"].probes[0].outputs["output"].shape == (2, 999, 2)


def test_unknown_input_in_dynamic_axes():
    x = keras.Input((None, 2), name="x")
    with pytest.raises(InvalidModelError, match="dynamic_axes names no input"):
        functional_spec(keras.Model(x, x * 2), dynamic_axes={"y": {1: "length"}})
