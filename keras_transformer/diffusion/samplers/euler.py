"""Euler's method for the flow from noise to data."""

from __future__ import annotations

import numpy as np

from keras_transformer.diffusion.processes.process import ProcessPoints
from keras_transformer.utils.serialization import Configured, serializable
from keras_transformer.utils.types import Config


@serializable
class Euler(Configured):
    """Euler's method, of order 1: `z_s = α_s x̂ + σ_s ε̂`, with the data x̂ and the noise `ε̂ = (z_t - α_t x̂) / σ_t`.

    For rectified flow it is `z_s = z_t + (s - t) v`. In general it is a step of `z / α` along `σ / α`, as for the denoisers
    of Karras et al.; for DDPM it is `DDIM` without noise.

    Example:

    >>> from keras_transformer.diffusion import RectifiedFlow
    >>> Euler().coefficients(RectifiedFlow().points(2)).tolist()
    [[0.5, 0.5, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]]

    Reference: Esser et al., arXiv 2403.03206, section 2; Karras et al., arXiv 2206.00364, algorithm 1 without its
    correction.
    """

    def coefficients(self, points: ProcessPoints) -> np.ndarray:
        """Returns a, b, c and d of each step, float64 `(num_steps, 4)`: c and d are 0."""
        state = points.sigmas[1:] / points.sigmas[:-1]
        data = points.alphas[1:] - points.alphas[:-1] * state
        zero = np.zeros_like(state)
        return np.stack([state, data, zero, zero], axis=1)

    def get_config(self) -> Config:
        return {}
