"""The comparison of one output with its reference: blocks, sentinels and what rounding explains, computed by hand."""

import math

import numpy as np
import pytest

from keras_transformer.export.verification.comparison import (
    Limit,
    block_maximum,
    compare,
    parity_error,
    sentinels,
    varies,
)

ULP = 2.0**-23


def floats(*values):
    return np.array(values, "float32")


def test_difference_is_judged_by_the_scale_of_the_output():
    found = compare(floats(1, -200), floats(1.5, -200), limit=Limit(0.01))
    assert (found.difference, found.scale, found.share) == (0.5, 200, 0.25)
    assert compare(floats(0, 0), floats(0, 0)).scale == 1e-6
    assert compare(floats(), floats()).is_accepted


def test_a_block_is_judged_by_its_own_rounding():
    # Two rows of 16, one of scale 1e6: a difference that is nothing there is a fault in the other.
    expected = np.stack([np.full(16, 1e6), np.full(16, 0.5)]).astype("float32")
    rounding = np.array([[0.5], [1e-7]], "float32")
    for row, accepted, refused in ((0, 3.0, 4.0), (1, 7e-7, 9e-7)):
        for difference, is_accepted in ((accepted, True), (refused, False)):
            got = expected.astype("float64")
            got[row, 3] += difference
            assert compare(got, expected, rounding).is_accepted == is_accepted, (row, difference)


@pytest.mark.parametrize(("times", "is_accepted"), [(5.9, True), (6.1, False), (-5.9, True), (-6.1, False)])
def test_a_difference_is_allowed_6_times_the_rounding(times, is_accepted):
    expected = np.zeros((1, 20))
    got, rounding = expected.copy(), np.array([[1e-6]])
    got[0, 7] = times * 1e-6
    found = compare(got, expected, rounding)
    assert found.is_accepted == is_accepted
    assert found.share == pytest.approx(abs(times) / 6)


def test_an_error_names_the_difference_that_exceeds_its_limit():
    # The largest difference is allowed in its row; the other one is not.
    expected, rounding = np.stack([np.full(16, 1e3), np.full(16, 0.5)]).astype("float32"), np.array([[1.0], [1e-7]])
    got = expected.astype("float64")
    got[0, 1] += 5.0
    got[1, 2] += 0.01
    found = compare(got, expected, rounding)
    assert (found.difference, found.there) == (5.0, pytest.approx(0.01))
    message = str(parity_error("onnx", "y", "batch=2", found))
    assert "differs from Keras by 0.01, 1e-05 of its scale 1e+03; tolerance 8.38e-10" in message


def test_the_scale_is_how_far_an_output_varies():
    probes = [np.array([[0.1, 0.3]]), np.array([[0.1001, 0.3], [0.0999, 0.3]])]
    assert varies(probes) == pytest.approx(1e-4)
    assert varies([np.array([[5.0, -1e9]]), np.array([[5.5, -1e9]])]) == 0.25
    assert varies([np.ones((1, 4))]) is None  # One row varies over nothing.
    assert varies([np.zeros((1, 3)), np.ones((2, 5))]) == 0.5  # A last axis of several lengths.
    found = compare(probes[0] + 1e-6, probes[0], limit=Limit(0.1), scale=1e-4)
    assert found.ratio == pytest.approx(0.01)
    assert found.share == pytest.approx(0.1)


@pytest.mark.parametrize("unit", [2.0**13, 2.0**16])
def test_a_reference_of_16_bits_may_differ_by_its_own_units(unit):
    expected, rounding = np.full((1, 16), 1.0), np.full((1, 1), ULP)
    for units, is_accepted in ((9.9, True), (10.1, False)):
        assert compare(expected + units * ULP * unit, expected, rounding, Limit(unit=unit)).is_accepted == is_accepted
    for units, is_accepted in ((15.9, True), (16.1, False)):
        assert compare(expected + units * ULP * unit, expected, None, Limit(unit=unit)).is_accepted == is_accepted


@pytest.mark.parametrize(("units", "is_accepted"), [(3.9, True), (4.1, False)])
def test_four_units_in_the_last_place_are_rounding(units, is_accepted):
    expected, rounding = np.full((1, 20), 3.0), np.zeros((1, 1))
    assert compare(expected * (1 + units * ULP), expected, rounding).is_accepted == is_accepted


def test_an_output_whose_rounding_is_unknown_may_differ_by_1e_5():
    expected = np.full(20, 3.0)
    assert compare(expected + 2.9e-5, expected).is_accepted
    assert not compare(expected + 3.1e-5, expected).is_accepted


def test_rounding_explains_at_most_the_ceiling():
    expected, rounding = np.full((1, 20), 2.0), np.full((1, 1), 1.0)
    assert compare(expected + 5, expected, rounding).is_accepted
    assert compare(expected + 0.0019, expected, rounding, Limit(ceiling=1e-3)).is_accepted
    assert not compare(expected + 0.0021, expected, rounding, Limit(ceiling=1e-3)).is_accepted


def test_infinities_must_be_where_keras_has_them():
    inf = math.inf
    assert compare(floats(1, -inf), floats(1, -inf)).difference == 0
    for got in (floats(1, inf), floats(-inf, 1), floats(1, math.nan), floats(math.nan, -inf), floats(1, 2)):
        assert math.isnan(compare(got, floats(1, -inf), limit=Limit(1e9)).difference)


@pytest.mark.parametrize("mark", [-1e9, 1e9, -2e9, np.finfo("float32").min, np.finfo("float32").max, -1e30, -1e8])
def test_sentinels_are_equal_and_set_no_scale(mark):
    expected, limit = floats(0.5, mark, 0.25), Limit(1e-4)
    assert compare(expected, expected, limit=limit).scale == 0.5
    assert compare(floats(0.50004, mark, 0.25), expected, limit=limit).is_accepted
    assert not compare(floats(0.50006, mark, 0.25), expected, limit=limit).is_accepted
    # A mask that is dropped, or that marks another element.
    assert not compare(floats(0.5, 0.3, 0.25), expected, limit=limit).is_accepted
    assert not compare(floats(mark, 0.5, 0.25), expected, limit=limit).is_accepted
    assert not compare(floats(0.5, 0.99 * mark, 0.25), expected, limit=limit).is_accepted


def test_large_numbers_are_no_sentinels():
    assert sentinels(np.array([123456789.0, -5.5e12, 1e7, -1e4, 65504.0])).sum() == 0


def test_integers_may_differ_only_where_rounding_changes_them():
    expected, rounding = np.array([3, 4, 5]), np.array([0, 1, 0])
    assert compare(np.array([3, 9, 5]), expected, rounding).is_accepted
    assert not compare(np.array([2, 4, 5]), expected, rounding).is_accepted
    assert not compare(np.array([3, 9, 5]), expected).is_accepted


def test_values_rounded_to_int8_move_by_one_step_in_few_places():
    expected, rounding = np.zeros(100, "int8"), np.zeros(100)
    rounding[:2] = 1  # 6 x 2 + 4 places are allowed.
    got = np.zeros(100, "int8")
    got[50:66] = 1
    assert compare(got, expected, rounding).share == 1.0
    got[66] = -1
    assert not compare(got, expected, rounding).is_accepted
    assert not compare(got, expected).is_accepted
    assert not compare(np.int8([0, 2, 0]), np.int8([0, 0, 0]), np.ones(3)).is_accepted
    assert compare(np.int8([0, 9, 0]), np.int8([0, 0, 0]), limit=Limit(is_quantized=True)).is_accepted


def test_small_rows_are_one_block():
    # Rows of 3 and of 2 · 3 have fewer than 16 elements; three axes together have 24.
    array = np.arange(48.0).reshape(2, 4, 2, 3)
    np.testing.assert_array_equal(block_maximum(array), [[[[23.0]]], [[[47.0]]]])
    assert block_maximum(np.ones((5, 40))).shape == (5, 1)
    assert block_maximum(np.float64(3.0)).shape == ()


def test_denormal_numbers_are_0():
    expected, rounding = floats(0, 1), np.full((1,), 0, "float32")
    assert compare(floats(1e-39, 1), expected, rounding).is_accepted
    assert compare(floats(4 * 1.17e-38, 1), expected, rounding).is_accepted  # Four times one of them, say.
    assert not compare(floats(3e-35, 1), expected, rounding).is_accepted


def test_a_number_by_itself_may_be_a_sentinel():
    assert sentinels(np.array(-1e9)).item() is True
    assert sentinels(np.array(123456789.0)).item() is False
    assert compare(np.array(123456789.0, "float32"), np.array(123456789.0, "float32")).difference == 0
