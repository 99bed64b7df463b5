"""Processes: times, coefficients and targets by hand."""

import keras
import numpy as np
import pytest
from scipy import special

from keras_transformer.diffusion import DDPM, RectifiedFlow

X, NOISE = np.array([1.0, -2.0]), np.array([0.5, 3.0])


def as_float64(*tensors):
    return [keras.ops.convert_to_numpy(tensor) for tensor in tensors]


def test_times_of_rectified_flow_are_logit_normal():
    quantiles = np.array([0.025, 0.3, 0.5, 0.975])
    (times,) = as_float64(RectifiedFlow(logit_mean=-0.4, logit_std=1.5).times(quantiles))
    np.testing.assert_allclose(times, special.expit(-0.4 + 1.5 * special.ndtri(quantiles)), rtol=1e-6)
    (shifted,) = as_float64(RectifiedFlow(-0.4, 1.5, shift=3.0).times(quantiles))
    np.testing.assert_allclose(shifted, 3 * times / (1 + 2 * times), rtol=1e-6)
    assert as_float64(RectifiedFlow().times(np.array([0.0])))[0] == 0.0


def test_rectified_flow_is_a_line():
    process = RectifiedFlow()
    alpha, sigma = as_float64(*process.coefficients(np.array([0.2, 0.7])))
    np.testing.assert_allclose(alpha * X + sigma * NOISE, [0.8 * 1.0 + 0.2 * 0.5, -0.3 * 2.0 + 0.7 * 3.0])
    np.testing.assert_allclose(process.target(X, NOISE), [-0.5, 5.0])


def test_steps_of_ddpm_are_equally_probable():
    process = DDPM("linear", num_steps=40)
    quantiles = np.linspace(0, 1, 400, endpoint=False) + 1e-3
    (times,) = as_float64(process.times(quantiles))
    steps, counts = np.unique(np.round(times * 40), return_counts=True)
    assert steps.tolist() == list(range(40))
    assert set(counts) == {10}


def test_coefficients_of_ddpm():
    process = DDPM("linear", num_steps=1000)
    alpha, sigma = as_float64(*process.coefficients(np.array([0.0, 0.001, 0.999])))
    second = (1 - 1e-4) * (1 - (1e-4 + (0.02 - 1e-4) / 999))
    np.testing.assert_allclose(alpha[:2] ** 2, [1 - 1e-4, second], rtol=1e-6)
    np.testing.assert_allclose(alpha**2 + sigma**2, 1.0, rtol=1e-6)
    np.testing.assert_allclose(process.target(X, NOISE), NOISE)


@pytest.mark.parametrize("process", [RectifiedFlow(), DDPM("linear", 30), DDPM("cosine", 30)])
def test_data_factors_invert_the_prediction(process):
    points = process.points(7)
    alphas, sigmas = points.alphas[:-1, None], points.sigmas[:-1, None]
    ours, theirs = process.data_factors(alphas, sigmas)
    data = ours * (alphas * X + sigmas * NOISE) + theirs * process.target(X, NOISE)
    np.testing.assert_allclose(data, np.broadcast_to(X, (7, 2)), rtol=1e-9)
    alpha, sigma = as_float64(*process.coefficients(points.times))
    np.testing.assert_allclose([alpha, sigma], [points.alphas[:-1], points.sigmas[:-1]], rtol=1e-6)


def test_wrong_arguments():
    for fails in (lambda: RectifiedFlow(shift=0.0), lambda: DDPM("linear", 20), lambda: DDPM(num_steps=0)):
        with pytest.raises(ValueError, match="Received"):
            fails()
    with pytest.raises(ValueError, match="did you mean 'cosine'"):
        DDPM("cosin")
