"""DDPM: a process of discrete steps whose noise is predicted."""

from __future__ import annotations

import numpy as np
from keras import ops

from keras_transformer.diffusion.processes.noise_schedules import NOISE_SCHEDULES
from keras_transformer.diffusion.processes.process import ProcessPoints, check_num_steps
from keras_transformer.utils.serialization import Configured, choice, serializable
from keras_transformer.utils.types import Config, Tensor


@serializable
class DDPM(Configured):
    """DDPM: `z_i = √ᾱ_i x + √(1 - ᾱ_i) ε`, whose noise ε is predicted, at steps i of equal probability.

    The time of step i is `i / num_steps`, so that `TimestepEmbedding` with 1000 steps embeds i itself. The last steps have
    so little data that errors of the predicted noise become large errors of the data, above all with "cosine": sample with
    `data_range`.

    Args:
        schedule: a name in `NOISE_SCHEDULES`: "linear" or "cosine". Default "linear".
        num_steps: int >= 1. Steps of the process; a sampler takes any number up to it. Default 1000.

    Raises:
        ValueError: unknown schedule; a `num_steps` too small for it.

    Example:

    >>> import numpy as np
    >>> process = DDPM("linear", num_steps=1000)
    >>> process.times(np.array([0.0, 0.5, 0.9999])).numpy().tolist()
    [0.0, 0.5, 0.999]
    >>> process.points(4).times.tolist()
    [0.999, 0.749, 0.499, 0.249]

    Reference: Ho et al., Denoising Diffusion Probabilistic Models, arXiv 2006.11239, equations 4 and 14. Samplers take the
    last step first ("trailing"): Lin et al., arXiv 2305.08891, section 3.3.
    """

    def __init__(self, schedule: str = "linear", num_steps: int = 1000) -> None:
        check_num_steps(num_steps)
        self._products = choice(schedule, NOISE_SCHEDULES, argument="schedule")(num_steps)
        self.schedule = schedule
        self.num_steps = num_steps

    def times(self, quantiles: Tensor) -> Tensor:
        """Returns the times of the steps at quantiles in [0, 1), each as likely as the others, of the same shape."""
        return ops.floor(quantiles * self.num_steps) / self.num_steps

    def coefficients(self, times: Tensor) -> tuple[Tensor, Tensor]:
        """Returns α and σ of the steps nearest to the times, of the same shape: roots of products of `1 - β`."""
        steps = ops.cast(ops.round(times * self.num_steps), "int32")
        tables = np.sqrt(self._products), np.sqrt(1.0 - self._products)
        dtype = ops.convert_to_tensor(times).dtype
        alpha, sigma = (ops.take(ops.convert_to_tensor(table, dtype), steps, axis=0) for table in tables)
        return alpha, sigma

    def target(self, data: Tensor, noise: Tensor) -> Tensor:
        """Returns the noise, of its shape."""
        del data
        return noise

    def points(self, num_steps: int) -> ProcessPoints:
        """Returns the points of a sampler of `num_steps` steps, at most those of the process."""
        check_num_steps(num_steps)
        if num_steps > self.num_steps:
            raise ValueError(f"A sampler takes at most {self.num_steps} steps, those of DDPM. Received: {num_steps}")
        steps = np.round(self.num_steps * (1.0 - np.arange(num_steps) / num_steps)).astype(int) - 1
        products = np.append(self._products[steps], 1.0)
        return ProcessPoints(steps / self.num_steps, np.sqrt(products), np.sqrt(1.0 - products))

    def data_factors(self, alphas: np.ndarray, sigmas: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns u = 1 / α and w = -σ / α of the data `x = u z + w prediction` at these points."""
        return 1.0 / alphas, -sigmas / alphas

    def get_config(self) -> Config:
        return {"schedule": self.schedule, "num_steps": self.num_steps}
