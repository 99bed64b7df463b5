"""Rectified flow: straight lines from data to noise."""

from __future__ import annotations

import math

import numpy as np
from keras import ops

from keras_transformer.diffusion.processes.process import ProcessPoints, check_num_steps
from keras_transformer.utils.serialization import Configured, serializable
from keras_transformer.utils.types import Config, Tensor


@serializable
class RectifiedFlow(Configured):
    """Rectified flow: `z_t = (1 - t) x + t ε`, whose velocity `ε - x` is predicted, with logit-normal times in training.

    The times are `t = s τ / (1 + (s - 1) τ)` with `τ = σ(m + d n)`, n standard normal, σ the logistic function: mostly in
    the middle, where prediction is hardest. Samplers take τ from 1 to 0 in equal steps.

    Args:
        logit_mean: float. Mean m. Default 0.
        logit_std: float >= 0. Standard deviation d. Default 1.
        shift: float > 0. The shift s: above 1, more noise in training and more steps in noise, as large images need.
            Default 1: none.

    Raises:
        ValueError: `logit_std` below 0, or `shift` not above 0.

    Example:

    >>> process = RectifiedFlow(shift=3.0)
    >>> process.points(4).times.tolist()
    [1.0, 0.9, 0.75, 0.5]
    >>> float(process.target(data=1.0, noise=-2.0))
    -3.0

    Reference: Liu et al., Flow Straight and Fast, arXiv 2209.03003; Esser et al., Scaling Rectified Flow Transformers,
    arXiv 2403.03206, sections 2 and 3.1 (times, equation 19) and 5.3.2 (shift, equation 23).
    """

    def __init__(self, logit_mean: float = 0.0, logit_std: float = 1.0, shift: float = 1.0) -> None:
        if logit_std < 0 or not shift > 0:
            raise ValueError(
                f"logit_std must be at least 0 and shift above 0. Received: logit_std={logit_std}, shift={shift}"
            )
        self.logit_mean = logit_mean
        self.logit_std = logit_std
        self.shift = shift

    def times(self, quantiles: Tensor) -> Tensor:
        """Returns the times at quantiles in [0, 1) of the shifted logit-normal distribution, of the same shape."""
        normal = math.sqrt(2.0) * ops.erfinv(2.0 * quantiles - 1.0)
        return self._shifted(ops.sigmoid(self.logit_mean + self.logit_std * normal))

    def coefficients(self, times: Tensor) -> tuple[Tensor, Tensor]:
        """Returns α = 1 - t and σ = t at the times, of the same shape."""
        return 1.0 - times, times

    def target(self, data: Tensor, noise: Tensor) -> Tensor:
        """Returns the velocity, `noise - data`, of their shape."""
        return noise - data

    def points(self, num_steps: int) -> ProcessPoints:
        """Returns the points of a sampler: `num_steps` shifted times from 1 on, and 0 behind them."""
        check_num_steps(num_steps)
        times = self._shifted(np.linspace(1.0, 0.0, num_steps + 1))
        return ProcessPoints(times[:-1], 1.0 - times, times)

    def data_factors(self, alphas: np.ndarray, sigmas: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns u = 1 and w = -σ of the data `x = u z + w prediction` at these points."""
        return np.ones_like(alphas), -np.asarray(sigmas)

    def _shifted(self, times):
        return self.shift * times / (1.0 + (self.shift - 1.0) * times)

    def get_config(self) -> Config:
        return {"logit_mean": self.logit_mean, "logit_std": self.logit_std, "shift": self.shift}
