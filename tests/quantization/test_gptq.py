"""GPTQ against the loop of the paper in float64, and what it gains."""

import keras
import numpy as np
import pytest

from keras_transformer.quantization import (
    GPTQ,
    Clipping,
    Nearest,
    WeightQuantizationError,
    WeightScheme,
)
from keras_transformer.quantization.methods.gptq import column_order, inverse_factor
from keras_transformer.quantization.methods.refinement import fitted_scales
from keras_transformer.quantization.observation.statistics import Statistics
from keras_transformer.quantization.rounding import best_scales, in_blocks

SCHEMES = [
    WeightScheme(4, 32),
    WeightScheme(4, 32, True),
    WeightScheme(4, None),
    WeightScheme(3, 64),
    WeightScheme(8, None),
]


@pytest.fixture
def layer(random):
    """Rows of a weight, and correlated inputs with large channels."""
    mix = random.normal(size=(128, 128)) * np.exp(random.normal(size=128)) * 0.3 + np.eye(128)
    x = (random.normal(size=(1000, 128)) @ mix).astype("float32")
    statistics = Statistics(128)
    statistics.add(x)
    return (random.normal(size=(48, 128)) * 0.05).astype("float32"), x, statistics


def brute_force(rows, scheme, statistics, damping, order_name):
    """Algorithm 1, one column and one row of the inverse Hessian at a time, in float64."""
    count, width = rows.shape
    size = scheme.block_size or width
    hessian = statistics.hessian * 1000 / 1128
    hessian[np.diag_indices(width)] = statistics.mean_square
    order = column_order(np.diagonal(hessian), size, order_name)
    hessian = hessian + damping * np.diagonal(hessian).mean() * np.eye(width)
    upper = np.linalg.cholesky(np.linalg.inv(hessian[np.ix_(order, order)])).T
    weight = np.empty(width)
    weight[order] = 1 / np.diagonal(upper) ** 2
    weight = (weight / weight.mean()).astype("float32").reshape(1, -1, size)
    left, values = rows.astype("float64")[:, order], np.empty((count, width))
    fixed = best_scales(in_blocks(rows, scheme), scheme, weight)
    scales = {}
    for j, column in enumerate(order):
        block = column // size
        if order_name == "activation" or scheme.block_size is None:
            scales[block] = [None if part is None else part[:, block] for part in fixed]
        elif block not in scales:
            now = np.empty((count, 1, size), "float32")
            now[:, 0, order[j : j + size] % size] = left[:, j : j + size]
            found = best_scales(now, scheme, weight[:, block : block + 1])
            scales[block] = [None if part is None else part[:, 0] for part in found]
        scale, minimum = scales[block]
        low = 0 if minimum is None else minimum.astype("float64")
        q = np.clip(np.round((left[:, j] - low) / scale), scheme.lowest, scheme.highest)
        values[:, column] = q * scale + low
        left[:, j + 1 :] -= np.outer((left[:, j] - values[:, column]) / upper[j, j], upper[j, j + 1 :])
    return values


@pytest.mark.parametrize("order", ["activation", "block", None])
@pytest.mark.parametrize("scheme", [WeightScheme(4, 32), WeightScheme(3, 32, True), WeightScheme(4, None)])
def test_it_is_the_algorithm_of_the_paper(layer, scheme, order):
    rows, _, statistics = layer
    expected_order = "activation" if scheme.block_size is None else order
    expected = brute_force(rows, scheme, statistics, 0.02, expected_order)
    found = GPTQ(damping=0.02, order=order, sweeps=0).round(rows, scheme, statistics)
    # A number that lies between two integers may go either way in float32, and changes those behind it.
    same = np.isclose(found.values, expected, rtol=1e-5, atol=1e-6).all(axis=1)
    assert same.mean() > 0.8
    assert statistics.error(found.values - rows) == pytest.approx(statistics.error(expected - rows), rel=0.02)


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_each_method_loses_less_than_the_one_before(layer, scheme):
    rows, x, statistics = layer

    def loss(method):
        blocks = method.round(rows, scheme, statistics)
        assert blocks.codes.max() <= scheme.highest + scheme.zero
        assert blocks.codes.min() >= scheme.lowest + scheme.zero
        return np.square(x @ (blocks.values - rows).T).sum()

    nearest, clipping, gptq, swept = map(loss, (Nearest(), Clipping(), GPTQ(sweeps=0), GPTQ()))
    assert clipping <= 1.001 * nearest
    assert gptq < 0.6 * clipping
    assert swept < gptq


@pytest.mark.exhaustive
@pytest.mark.parametrize("scheme", [WeightScheme(4, 32), WeightScheme(4, 32, True), WeightScheme(4, None)], ids=str)
def test_it_loses_no_more_than_that_of_keras(layer, scheme):
    rows, x, statistics = layer
    block = keras.Sequential([keras.Input((None, 128)), keras.layers.Dense(48, use_bias=False, name="dense")])
    block.layers[-1].kernel.assign(rows.T)
    config = keras.quantizers.GPTQConfig(
        dataset=[np.arange(1000)],
        tokenizer=list,
        num_samples=1,
        sequence_length=1000,
        weight_bits=4,
        symmetric=not scheme.has_minimum,
        group_size=scheme.block_size or -1,
        activation_order=True,
        quantization_layer_structure={
            "pre_block_layers": [lambda ids: x[np.asarray(ids)]],
            "sequential_blocks": [block],
        },
    )
    block.quantize("gptq", config=config)
    assert block.layers[-1].quantization_mode == "gptq"
    expected = x @ rows.T
    theirs = np.square(np.asarray(block(x[None]))[0] - expected).sum()
    ours = np.square(x @ GPTQ().round(rows, scheme, statistics).values.T - expected).sum()
    assert ours <= theirs < 0.1 * np.square(expected).sum()


def test_factor_of_the_inverse(layer):
    hessian = layer[2].hessian + 0.1 * np.eye(128)
    upper = inverse_factor(hessian)
    np.testing.assert_allclose(upper.T @ upper, np.linalg.inv(hessian), rtol=1e-6, atol=1e-9)
    assert not np.tril(upper, -1).any()


def test_channels_without_activations_are_rounded_to_the_nearest(layer, random):
    rows, x, _ = layer
    x[:, 5] = 0
    statistics = Statistics(128)
    statistics.add(x)
    blocks = GPTQ().round(rows, WeightScheme(4, 32), statistics)
    assert np.isfinite(blocks.values).all()
    scale = blocks.scale[:, 0].astype("float32")
    assert (np.abs(blocks.values[:, 5] - np.clip(rows[:, 5], -8 * scale, 7 * scale)) <= 0.51 * scale).all()
    nothing = GPTQ().round(rows, WeightScheme(4, 32), Statistics(128))
    np.testing.assert_array_equal(nothing.values, Nearest().round(rows, WeightScheme(4, 32)).values)


def test_scales_are_fitted_with_the_whole_hessian(layer):
    rows, x, statistics = layer
    scheme = WeightScheme(4, None)
    q = Nearest().round(rows, scheme).codes.astype("float32") - scheme.zero
    scale, _ = fitted_scales(rows, q, None, scheme, statistics.hessian)
    products, wished = x @ q[0, 0], x @ rows[0]
    assert scale[0, 0] == pytest.approx(products @ wished / (products @ products), rel=1e-3)


@pytest.mark.parametrize("options", [{"damping": 0}, {"order": "random"}, {"sweeps": -1}])
def test_arguments_are_checked(options):
    with pytest.raises(WeightQuantizationError, match=next(iter(options))):
        GPTQ(**options)
