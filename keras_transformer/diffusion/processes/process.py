"""The contract of a process that turns data into noise."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from keras_transformer.utils.types import Config, Tensor


class ProcessPoints(NamedTuple):
    """The points of a process that a sampler visits, from noise to data; float64 arrays.

    Attributes:
        times: `(num_steps,)`: the times at which the denoiser is called.
        alphas: `(num_steps + 1,)`: shares of the data at these times and, at the end, 1.
        sigmas: `(num_steps + 1,)`: shares of the noise and, at the end, 0.

    Example:

    >>> from keras_transformer.diffusion import RectifiedFlow
    >>> RectifiedFlow().points(2).sigmas.tolist()
    [1.0, 0.5, 0.0]
    """

    times: np.ndarray
    alphas: np.ndarray
    sigmas: np.ndarray


class NoiseProcess(Protocol):
    """A process `z_t = α_t x + σ_t ε` from data x at time 0 to noise ε at time 1, and what a denoiser predicts of it.

    To write one: a registered subclass of `Configured`, and a line in `PROCESSES`.

    Example:

    >>> from keras_transformer.diffusion import DDPM
    >>> process: NoiseProcess = DDPM("linear")
    >>> process.data_factors(np.array([0.5]), np.array([0.25]))
    (array([2.]), array([-0.5]))
    """

    def times(self, quantiles: Tensor) -> Tensor:
        """Returns the times at quantiles in [0, 1) of their distribution in training, of the same shape."""
        ...

    def coefficients(self, times: Tensor) -> tuple[Tensor, Tensor]:
        """Returns α and σ at the times, of the same shape."""
        ...

    def target(self, data: Tensor, noise: Tensor) -> Tensor:
        """Returns what the denoiser is to predict of `α data + σ noise`, of their shape."""
        ...

    def points(self, num_steps: int) -> ProcessPoints:
        """Returns the points of a sampler of `num_steps` steps."""
        ...

    def data_factors(self, alphas: np.ndarray, sigmas: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns u and w of the data `x = u z + w prediction` that a prediction at these points means."""
        ...

    def get_config(self) -> Config:
        """Returns the arguments of the constructor."""
        ...


def check_num_steps(num_steps: int) -> None:
    """Refuses a number of steps below 1."""
    if num_steps < 1:
        raise ValueError(f"num_steps must be at least 1. Received: {num_steps}")
