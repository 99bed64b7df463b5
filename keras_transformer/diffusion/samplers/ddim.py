"""DDIM: deterministic steps, or with a share of the noise of DDPM."""

from __future__ import annotations

import numpy as np

from keras_transformer.diffusion.processes.process import ProcessPoints
from keras_transformer.utils.serialization import Configured, serializable
from keras_transformer.utils.types import Config


@serializable
class DDIM(Configured):
    """DDIM: `z_s = α_s x̂ + √(σ_s² - ρ²) ε̂ + ρ n`, with `ρ = η σ_s/σ_t √(σ_t² - (α_t/α_s)² σ_s²)` and new noise n.

    Args:
        eta: float in [0, 1]. The share η of new noise: 0 for none (the default), 1 for the sampler of DDPM.

    Raises:
        ValueError: `eta` outside [0, 1].

    Example:

    >>> from keras_transformer.diffusion import DDPM
    >>> points = DDPM("linear").points(3)
    >>> DDIM(eta=1.0).coefficients(points)[:, 3].round(3).tolist()
    [0.993, 0.814, 0.0]

    Reference: Song et al., Denoising Diffusion Implicit Models, arXiv 2010.02502, equations 12 and 16; written for any α and
    σ, of which the paper has `α² + σ² = 1`.
    """

    def __init__(self, eta: float = 0.0) -> None:
        if not 0 <= eta <= 1:
            raise ValueError(f"eta must be in [0, 1]. Received: {eta}")
        self.eta = eta

    def coefficients(self, points: ProcessPoints) -> np.ndarray:
        """Returns a, b, c and d of each step, float64 `(num_steps, 4)`: c is 0, and d the noise that `eta` adds."""
        (alpha, next_alpha), (sigma, next_sigma) = ((each[:-1], each[1:]) for each in (points.alphas, points.sigmas))
        forward = np.sqrt(np.maximum(sigma**2 - (alpha / next_alpha * next_sigma) ** 2, 0.0))
        noise = self.eta * next_sigma / sigma * forward
        state = np.sqrt(np.maximum(next_sigma**2 - noise**2, 0.0)) / sigma
        data = next_alpha - alpha * state
        return np.stack([state, data, np.zeros_like(state), noise], axis=1)

    def get_config(self) -> Config:
        return {"eta": self.eta}
