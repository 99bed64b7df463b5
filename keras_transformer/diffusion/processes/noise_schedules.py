"""Noise schedules of DDPM: how much data is left after each step."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np


def linear_schedule(num_steps: int) -> np.ndarray:
    """Returns `ᾱ_i`, the product of `1 - β_j` up to i, with β from 0.0001 to 0.02 for 1000 steps.

    Args:
        num_steps: int >= 1. For other numbers than 1000 the β are scaled by 1000 / `num_steps`, which keeps the end. At
            least 21: with fewer, β would pass 1.

    Returns:
        float64 `(num_steps,)`.

    Raises:
        ValueError: fewer than 21 steps.

    Example:

    >>> linear_schedule(1000)[[0, -1]].round(6).tolist()
    [0.9999, 4e-05]

    Reference: Ho et al., Denoising Diffusion Probabilistic Models, arXiv 2006.11239, section 4; the scaling as in the
    published code of Nichol and Dhariwal, arXiv 2102.09672.
    """
    if num_steps < 21:
        raise ValueError(f"The linear schedule needs at least 21 steps. Received: {num_steps}")
    scale = 1000.0 / num_steps
    return np.cumprod(1.0 - np.linspace(1e-4 * scale, 0.02 * scale, num_steps))


def cosine_schedule(num_steps: int) -> np.ndarray:
    """Returns `ᾱ_i = f(i + 1) / f(0)` with `f(i) = cos²(π/2 (i / T + 0.008) / 1.008)`, and each β at most 0.999.

    Args:
        num_steps: int >= 1. The number T of steps.

    Returns:
        float64 `(num_steps,)`.

    Example:

    >>> cosine_schedule(4).round(4).tolist()
    [0.847, 0.4938, 0.1443, 0.0001]

    Reference: Nichol and Dhariwal, Improved Denoising Diffusion Probabilistic Models, arXiv 2102.09672, section 3.2.
    """
    left = np.cos(np.pi / 2 * (np.arange(num_steps + 1) / num_steps + 0.008) / 1.008) ** 2
    return np.cumprod(1.0 - np.minimum(1.0 - left[1:] / left[:-1], 0.999))


NOISE_SCHEDULES: dict[str, Callable[[int], np.ndarray]] = {
    "linear": linear_schedule,
    "cosine": cosine_schedule,
}
