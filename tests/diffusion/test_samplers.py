"""Samplers, against solutions in closed form and those of diffusers, in float64."""

from pathlib import Path

import numpy as np
import pytest

from keras_transformer.diffusion import (
    DDIM,
    DDPM,
    NOISE_SCHEDULES,
    SAMPLERS,
    DPMSolverPP,
    Euler,
    ProcessPoints,
    RectifiedFlow,
)

REFERENCE = np.load(Path(__file__).parents[1] / "data" / "diffusion_samplers.npz")
MEAN, STD = 0.7, 0.4


def best_prediction(points, index, state):
    """The mean of normal data given the state."""
    alpha, sigma = points.alphas[index], points.sigmas[index]
    gain = alpha * STD**2 / (alpha**2 * STD**2 + sigma**2)
    return MEAN + gain * (state - alpha * MEAN)


def sample(points, sampler, state, predict=best_prediction):
    before = 0.0
    for index, (kept, new, old, _) in enumerate(sampler.coefficients(points)):
        data = predict(points, index, state)
        state, before = kept * state + new * data + old * before, data
    return state


def solution(points, state):
    """Where the flow of normal data ends."""
    (alpha, sigma), (end, rest) = ((points.alphas[index], points.sigmas[index]) for index in (0, -1))
    scale = np.sqrt((end**2 * STD**2 + rest**2) / (alpha**2 * STD**2 + sigma**2))
    return end * MEAN + scale * (state - alpha * MEAN)


@pytest.mark.parametrize("process", [RectifiedFlow(), RectifiedFlow(shift=3.0), DDPM("cosine", 10**5)])
@pytest.mark.parametrize("sampler", [Euler(), DDIM()])
def test_first_order(process, sampler):
    """Twice the steps, half the error."""
    errors = [sample(points, sampler, 1.3) - solution(points, 1.3) for points in map(process.points, (80, 160, 320))]
    np.testing.assert_allclose(np.divide(errors[:-1], errors[1:]), 2.0, atol=0.06)


def even_points(num_steps):
    """Points of rectified flow between times 0.95 and 0.02, at equal steps of log(alpha / sigma)."""
    logits = np.linspace(np.log(0.05 / 0.95), np.log(0.98 / 0.02), num_steps + 1)
    alphas = 1 / (1 + np.exp(-logits))
    return ProcessPoints(1 - alphas[:-1], alphas, 1 - alphas)


def test_second_order():
    """Twice the steps, a quarter of the error, away from the ends where log(alpha / sigma) is infinite."""
    errors = [sample(points, DPMSolverPP(), 1.3) - solution(points, 1.3) for points in map(even_points, (80, 160, 320))]
    np.testing.assert_allclose(np.divide(errors[:-1], errors[1:]), 4.0, atol=0.15)
    # With the ends it is better than Euler's method, too.
    points = RectifiedFlow().points(40)
    second, first = (abs(sample(points, each, 1.3) - solution(points, 1.3)) for each in (DPMSolverPP(), Euler()))
    assert second < first / 5


def test_ddim_with_noise_has_the_moments_of_the_data():
    """Mean and variance of the state go through linear steps with the best prediction; one error is that of the steps."""
    points = DDPM("cosine", 1000).points(1000)
    mean, variance = points.alphas[0] * MEAN, (points.alphas[0] * STD) ** 2 + points.sigmas[0] ** 2
    for index, (kept, new, _, noise) in enumerate(DDIM(eta=1.0).coefficients(points)):
        offset, slope = (best_prediction(points, index, state) for state in (0.0, 1.0))
        gain = kept + new * (slope - offset)
        mean, variance = gain * mean + new * offset, gain**2 * variance + noise**2
    np.testing.assert_allclose(mean, MEAN, rtol=1e-9)
    np.testing.assert_allclose(np.sqrt(variance), STD, rtol=0.01)


def test_ddim_with_noise_is_the_posterior_of_ddpm():
    """With eta = 1: `q(z_s | z_t, x)` of equation 7 of Ho et al."""
    points = DDPM("linear", 1000).points(1000)
    kept, new, _, noise = DDIM(eta=1.0).coefficients(points)[300]
    product, following = points.alphas[300] ** 2, points.alphas[301] ** 2
    beta = 1 - product / following
    np.testing.assert_allclose(noise**2, (1 - following) / (1 - product) * beta, rtol=1e-9)
    np.testing.assert_allclose(new, np.sqrt(following) * beta / (1 - product), rtol=1e-9)
    np.testing.assert_allclose(kept, np.sqrt(1 - beta) * (1 - following) / (1 - product), rtol=1e-9)


def test_euler_follows_the_velocity_of_rectified_flow():
    points = RectifiedFlow(shift=2.0).points(5)
    state = velocity = 0.0

    def predict(points, index, state):
        return state - points.sigmas[index] * np.sin(state + index)

    state = 0.9
    for index, (time, following) in enumerate(zip(points.sigmas[:-1], points.sigmas[1:], strict=True)):
        velocity = np.sin(state + index)
        state = state + (following - time) * velocity
    np.testing.assert_allclose(sample(points, Euler(), 0.9, predict), state, rtol=1e-12)


def of_diffusers(process, sampler):
    def predict(points, index, state):
        ours, theirs = process.data_factors(points.alphas[:-1], points.sigmas[:-1])
        return ours[index] * state + theirs[index] * (0.8 * np.sin(3 * state) + 0.5 * points.times[index])

    return sample(process.points(10), sampler, REFERENCE["start"], predict)


@pytest.mark.parametrize("schedule", NOISE_SCHEDULES)
@pytest.mark.parametrize("name", ["ddim", "dpm_solver_pp"])
def test_ddpm_samples_are_those_of_diffusers(schedule, name):
    np.testing.assert_allclose(
        of_diffusers(DDPM(schedule), SAMPLERS[name]()), REFERENCE[f"{schedule}/{name}"], rtol=1e-6, atol=1e-8
    )


@pytest.mark.parametrize("schedule", NOISE_SCHEDULES)
def test_schedules_are_those_of_diffusers(schedule):
    # In float32 there, where 1 - 0.999 has 4 digits.
    np.testing.assert_allclose(NOISE_SCHEDULES[schedule](1000), REFERENCE[f"{schedule}/products"], rtol=1e-4)


def test_flow_samples_are_those_of_diffusers():
    found = of_diffusers(RectifiedFlow(shift=3.0), Euler())
    np.testing.assert_allclose(found, REFERENCE["rectified_flow/euler"], atol=2e-6)


@pytest.mark.parametrize("name", SAMPLERS)
def test_one_step_gives_the_prediction(name):
    for process in (RectifiedFlow(), DDPM("linear", 50)):
        np.testing.assert_allclose(SAMPLERS[name]().coefficients(process.points(1)), [[0, 1, 0, 0]], atol=1e-12)


def test_arguments_out_of_range():
    for fails in (lambda: DDIM(eta=1.1), lambda: RectifiedFlow().points(0), lambda: DDPM(num_steps=30).points(31)):
        with pytest.raises(ValueError, match="Received"):
            fails()
