"""Learned ranges: the tensors of files that have them are found by their numbers."""

import dataclasses

import keras
import numpy as np
import pytest

from keras_transformer import training
from keras_transformer.export import FullInt8, QuantizationError
from keras_transformer.export.quantization.learned_ranges import LearnedRanges, range_of
from keras_transformer.export.quantization.ranges import RangeObserver
from keras_transformer.export.spec.trained_integers import measured_ranges, ordinary_model

ROWS = np.random.default_rng(0).normal(size=(64, 3)).astype("float32")


def observer_of(*batches):
    observer = RangeObserver()
    for batch in batches:
        observer.add(batch)
    return observer


def aware_model(dtype="float32"):
    wide = keras.layers.Dense(2, "relu", name="wide", dtype=dtype)
    layers = [keras.Input((3,), name="x"), wide, keras.layers.Dense(2, name="y")]
    aware = training.quantization_aware(keras.Sequential(layers, name="network"), "full_int8")
    aware(ROWS, training=True)
    return aware


@pytest.fixture(scope="module")
def ranges():
    return measured_ranges(aware_model(), [{"x": ROWS[:40]}, {"x": ROWS[40:]}])


@pytest.mark.parametrize("factor", [1.0, 0.25, 3.0])
def test_numbers_in_any_order_have_the_range_that_was_learned(ranges, factor):
    """A factor of the numbers is one of the range: those of queries are multiplied by 1 / sqrt(H)."""
    ends = np.minimum(ROWS.min(), 0), np.maximum(ROWS.max(), 0)
    observer = observer_of(factor * ROWS[::-1].T[:, :10], factor * ROWS[::-1].T[:, 10:])
    assert range_of(observer, "minmax", learned=ranges) == pytest.approx([factor * end for end in ends], rel=1e-5)
    assert ranges.range_of(observer) is not None


@pytest.mark.parametrize("other", [-ROWS, ROWS + 0.01, ROWS[:-1], np.where(ROWS.max() == ROWS, 9, ROWS)])
def test_other_numbers_have_the_range_of_the_method(ranges, other):
    assert ranges.range_of(observer_of(other)) is None
    expected = min(other.min(), 0), max(other.max(), 0)
    assert range_of(observer_of(other), "minmax", learned=ranges) == pytest.approx(expected)


def test_the_nearest_factor_counts():
    """Of two tensors that are multiples of each other, each has its own range."""
    known = [(observer_of(factor * ROWS), (-factor, 2 * factor)) for factor in (1.0, 5.0)]
    learned = LearnedRanges(known, [], [])
    assert learned.range_of(observer_of(5 * ROWS)) == (-5, 10)
    assert learned.range_of(observer_of(ROWS)) == (-1, 2)


def test_outputs_are_those_of_the_trained_model(ranges):
    assert len(ranges.ranges) == 3  # Of the input and of two layers.
    assert [each["y"].shape for each in ranges.outputs] == [(40, 2), (24, 2)]
    floats = ranges.floats[1]
    np.testing.assert_array_equal(ranges.expected(1, floats)["y"], ranges.outputs[1]["y"])
    assert np.abs(ranges.outputs[1]["y"] - floats["y"]).max() > 1e-4
    with pytest.raises(QuantizationError, match="'y' of the float file is not what the trained model computes"):
        ranges.expected(1, {"y": 1.01 * floats["y"]})


def test_the_ordinary_model_and_its_mode():
    aware, mode = aware_model(), FullInt8({"x": ROWS})
    plain, (found,) = ordinary_model(aware, [mode])
    assert found == dataclasses.replace(mode, trained=aware)
    assert [type(layer) for layer in plain.layers] == [keras.layers.Dense] * 2
    for quantize in (None, "int8", [mode, "float32"], dataclasses.replace(mode, activation_bits=16)):
        with pytest.raises(QuantizationError, match="has learned the ranges of 'full_int8', not"):
            ordinary_model(aware, quantize)


def test_a_model_in_mixed_precision_is_observed_in_float32():
    aware = aware_model("mixed_bfloat16")
    plain, mode = ordinary_model(aware, FullInt8({"x": ROWS}))
    assert aware.get_layer("wide").compute_dtype == "bfloat16"
    assert {layer.compute_dtype for layer in (*plain.layers, *mode.trained.layers)} == {"float32"}
    for ours, theirs in zip(mode.trained.weights, aware.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    learned = measured_ranges(mode.trained, [{"x": ROWS}])
    np.testing.assert_allclose(learned.floats[0]["y"], plain(ROWS), atol=1e-6)
