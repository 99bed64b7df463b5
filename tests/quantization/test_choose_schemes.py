"""Mixed precision within a budget."""

import keras
import numpy as np
import pytest

from keras_transformer.quantization import WeightQuantizationError, WeightScheme, choose_schemes, quantize_weights
from keras_transformer.quantization.choose_schemes import Choice, cheapest, measured, nbytes
from keras_transformer.quantization.kernels import kernels_of
from keras_transformer.quantization.observation.calibration import as_batches

FOUR, EIGHT = WeightScheme(4, 32), WeightScheme(8, None)


@pytest.fixture
def model(random):
    """Three layers; the second one's outputs hardly count."""
    model = keras.Sequential([keras.Input((64,)), *(keras.layers.Dense(64, name=name) for name in "abc")])
    model.get_layer("b").kernel.assign(np.diag(np.ones(64)) + random.normal(0, 0.05, (64, 64)))
    return model


def short(schemes):
    return {path.split("/")[-2]: scheme for path, scheme in schemes.items()}


def test_bytes_are_those_of_the_weights(model):
    for scheme in (FOUR, EIGHT, WeightScheme(3, 64), WeightScheme(4, 32, True), WeightScheme(4, None)):
        expected = quantize_weights(keras.models.clone_model(model), scheme).nbytes
        assert sum(nbytes(kernel, scheme) for kernel in kernels_of(model)) == expected


@pytest.mark.parametrize("measure", ["output", "divergence", "inputs"])
def test_a_budget_is_kept_and_spent_where_it_counts(model, measure, random):
    data = random.normal(size=(32, 64)).astype("float32")
    before = model.get_weights()
    small, large = (nbytes(kernels_of(model)[0], scheme) for scheme in (FOUR, EIGHT))
    rest = 3 * 64 * 4
    errors = {}
    for name in "abc":
        copy = keras.models.clone_model(model)
        copy.set_weights(before)
        quantize_weights(copy, {f"*{name}/kernel": FOUR})
        change = copy.predict(data, verbose=0) - model.predict(data, verbose=0)
        errors[name] = np.square(change).sum()
    worst = max(errors, key=errors.get)
    budget = rest + 2 * small + large
    found = short(choose_schemes(model, data, budget, [FOUR, EIGHT], measure))
    assert sorted(scheme.bits for scheme in found.values()) == [4, 4, 8]
    if measure != "inputs":
        assert found[worst] == EIGHT
    for now, then in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(now, then)
    assert set(short(choose_schemes(model, data, budget - 1, [FOUR, EIGHT], measure)).values()) == {FOUR}
    assert set(short(choose_schemes(model, data, 10**6, [FOUR, EIGHT], measure)).values()) == {EIGHT}
    weights = quantize_weights(model, choose_schemes(model, data, budget, [FOUR, EIGHT], measure))
    assert weights.nbytes + rest == budget


def test_errors_are_those_of_a_run_with_the_coarsest_scheme(model, random):
    """Other schemes share the run, by the squares of their rounding errors: near what a run of their own would say."""
    data, coarse = random.normal(size=(256, 64)).astype("float32"), WeightScheme(3, 64)
    found = measured(model, as_batches(model, data), [FOUR, coarse], "divergence")
    expected = model.predict(data, verbose=0)

    def divergence_of(scheme):
        copy = keras.models.clone_model(model)
        copy.set_weights(model.get_weights())
        quantize_weights(copy, {"*b/kernel": scheme})
        before, after = (np.exp(each.astype("float64")) for each in (expected, copy.predict(data, verbose=0)))
        before, after = (each / each.sum(-1, keepdims=True) for each in (before, after))
        return (before * np.log(before / after)).sum(-1).mean()

    errors = {choice.scheme: choice.error for choice in found[next(path for path in found if "b/kernel" in path)]}
    assert errors[coarse] == pytest.approx(divergence_of(coarse), rel=1e-3)
    assert errors[FOUR] == pytest.approx(divergence_of(FOUR), rel=0.25)


def test_the_step_with_the_most_error_for_a_byte_comes_first():
    choices = {
        "a": [Choice(None, 10, 5.0), Choice(None, 20, 1.0), Choice(None, 40, 0.0)],
        "b": [Choice(None, 10, 9.0), Choice(None, 50, 1.0)],
        "c": [Choice(None, 10, 1.0), Choice(None, 11, 2.0)],
    }
    assert {name: choice.nbytes for name, choice in cheapest(choices, 80).items()} == {"a": 20, "b": 50, "c": 10}
    assert {name: choice.nbytes for name, choice in cheapest(choices, 40).items()} == {"a": 20, "b": 10, "c": 10}
    assert {name: choice.nbytes for name, choice in cheapest(choices, 1000).items()} == {"a": 40, "b": 50, "c": 10}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budget": 1000}, "7,680 bytes, more than the budget of 1,000"),
        ({"budget": 10**6, "candidates": [WeightScheme(4, 256)]}, "no candidate fits"),
        ({"budget": 10**6, "measure": "loss"}, "measure"),
        ({"budget": 10**6, "data": np.ones((2, 3))}, "shape"),
    ],
)
def test_what_cannot_be_is_refused_before_work(model, options, message):
    with pytest.raises(WeightQuantizationError, match=message):
        choose_schemes(model, **{"data": np.ones((2, 64)), "candidates": [FOUR, EIGHT], **options})
