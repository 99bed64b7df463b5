"""The contract of a sampler: a table of coefficients."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from keras_transformer.diffusion.processes.process import ProcessPoints
from keras_transformer.utils.types import Config


class Sampler(Protocol):
    """A sampler whose steps are linear: `z_{k+1} = a_k z_k + b_k x_k + c_k x_{k-1} + d_k n_k`.

    z is the state, x the data that the denoiser predicts at each step, and n standard normal noise. To write one: a
    registered subclass of `Configured`, and a line in `SAMPLERS`.

    Example:

    >>> from keras_transformer.diffusion import Euler, RectifiedFlow
    >>> sampler: Sampler = Euler()
    >>> sampler.coefficients(RectifiedFlow().points(4)).shape
    (4, 4)
    """

    def coefficients(self, points: ProcessPoints) -> np.ndarray:
        """Returns a, b, c and d of each step, float64 `(num_steps, 4)`; `c_0` is 0."""
        ...

    def get_config(self) -> Config:
        """Returns the arguments of the constructor."""
        ...
