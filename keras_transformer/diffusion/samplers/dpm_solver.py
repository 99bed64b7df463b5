"""DPM-Solver++ of order 2, with the predictions of two steps."""

from __future__ import annotations

import numpy as np

from keras_transformer.diffusion.processes.process import ProcessPoints
from keras_transformer.utils.serialization import Configured, serializable
from keras_transformer.utils.types import Config


@serializable
class DPMSolverPP(Configured):
    """DPM-Solver++(2M), of order 2 with one call of the denoiser for each step.

    `z_s = σ_s/σ_t z_t + α_s (1 - e^{-h}) (x̂_t + h / (2 h') (x̂_t - x̂'))`, where `h = λ_s - λ_t`, `λ = log(α / σ)`, and x̂'
    and h' are those of the step before. The first step and the last, where the noise ends, are of order 1.

    Example:

    >>> from keras_transformer.diffusion import RectifiedFlow
    >>> DPMSolverPP().coefficients(RectifiedFlow().points(4)).round(3).tolist()[2]
    [0.5, 0.75, -0.25, 0.0]

    Reference: Lu et al., DPM-Solver++, arXiv 2211.01095, algorithm 2. Where λ is infinite, at the ends of rectified flow,
    the limits are taken.
    """

    def coefficients(self, points: ProcessPoints) -> np.ndarray:
        """Returns a, b, c and d of each step, float64 `(num_steps, 4)`: c weighs the data of the step before."""
        alphas, sigmas = points.alphas, points.sigmas
        with np.errstate(divide="ignore"):
            steps = np.diff(np.log(alphas) - np.log(sigmas))
        ratios = np.zeros(len(steps))
        ratios[1:-1] = steps[1:-1] / (2.0 * steps[:-2])
        state = sigmas[1:] / sigmas[:-1]
        data = alphas[1:] - alphas[:-1] * state
        return np.stack([state, data * (1.0 + ratios), -data * ratios, np.zeros_like(state)], axis=1)

    def get_config(self) -> Config:
        return {}
