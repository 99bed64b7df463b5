"""Ranges of activations: of histograms that grow, by extremes, by percentiles, and by the squared error of integers."""

import numpy as np
import pytest

from keras_transformer.export import Int8Static, QuantizationError
from keras_transformer.export.quantization.ranges import RANGES, RangeObserver


def observed(*arrays):
    observer = RangeObserver()
    for array in arrays:
        observer.add(array)
    return observer


def squared_error(values, ends):
    """Of 255 steps between two ends, with 0 exact, as the runtimes round."""
    step = (ends[1] - ends[0]) / 255
    zero = round(-ends[0] / step)
    codes = np.clip(np.round(values / step) + zero, 0, 255)
    return float(np.mean(np.square((codes - zero) * step - values)))


def silu(x):
    return x / (1 + np.exp(-x))


CASES = {
    "normal": lambda random: random.normal(size=40_000),
    "heavy tails": lambda random: random.standard_t(2.5, 40_000),
    "after silu": lambda random: silu(random.normal(size=40_000) * 3),
    "one outlier": lambda random: np.append(random.normal(size=40_000), 300.0),
}


@pytest.mark.parametrize("case", CASES)
def test_the_squared_error_is_nearly_the_least_of_all_ranges(case):
    values = CASES[case](np.random.default_rng(0))
    found = observed(*np.array_split(values, 7)).range("mse")
    extremes = values.min(), values.max()
    shares = np.geomspace(0.02, 1, 40)
    least = min(squared_error(values, (low * extremes[0], high * extremes[1])) for low in shares for high in shares)
    assert squared_error(values, found) <= 1.05 * least
    assert squared_error(values, found) <= 1.001 * squared_error(values, extremes)


def test_percentiles_leave_out_a_hundred_thousandth():
    values = np.random.default_rng(0).permutation(np.linspace(-1, 3, 1_000_001))
    values[0] = 50.0
    low, high = observed(values[:500], values[500:]).range("percentile")
    assert low == pytest.approx(-1, abs=0.02)
    assert high == pytest.approx(3, abs=0.02)


def test_growing_bins_lose_no_value():
    random = np.random.default_rng(0)
    parts = [random.normal(size=1000) * scale for scale in (1e-3, 1.0, 40.0, 1e-3)]
    observer = observed(*parts)
    assert observer._counts.sum() == 4000
    values = np.concatenate(parts)
    assert observer.range("minmax") == pytest.approx((values.min(), values.max()))
    edges = np.linspace(-observer._limit, observer._limit, 17)
    assert np.abs(observer._counts.reshape(16, -1).sum(axis=1) - np.histogram(values, edges)[0]).max() == 0


@pytest.mark.parametrize("method", RANGES)
def test_zero_is_in_every_range(method):
    low, high = observed(np.array([2.0, 5.0, np.inf])).range(method)
    assert low <= 0
    assert high == pytest.approx(5, rel=0.01)
    assert observed(np.zeros(3)).range(method) == (0.0, 0.0)
    assert observed(np.array([-4.0, -1.0])).range(method)[1] >= 0


@pytest.mark.parametrize("tails", [2.5, 30])
def test_entropy_leaves_out_tails_and_keeps_what_is_flat(tails):
    values = np.random.default_rng(0).standard_t(tails, 40_000)
    low, high = observed(values).range("entropy")
    assert (low > 0.6 * values.min()) == (tails == 2.5)
    assert np.mean((values < low) | (values > high)) < 0.01
    flat = observed(np.linspace(-1, 3, 100_001)).range("entropy")
    assert flat == pytest.approx((-1, 3), rel=0.03)


def test_a_moving_average_is_that_of_the_extremes_of_batches():
    observer = observed(np.array([-1.0, 2.0]), np.array([-3.0, 1.0]), np.array([1.0, 9.0]))
    assert observer.range("moving_average") == pytest.approx((-4 / 3, 4.0))


def test_an_unknown_way_is_refused():
    with pytest.raises(QuantizationError, match="moving_average. Received: 'widest'"):
        Int8Static([{}], ranges="widest")
