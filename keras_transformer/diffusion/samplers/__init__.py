"""Samplers: how the steps from noise to data follow from the predictions of a denoiser."""

from __future__ import annotations

from keras_transformer.diffusion.samplers.ddim import DDIM
from keras_transformer.diffusion.samplers.dpm_solver import DPMSolverPP
from keras_transformer.diffusion.samplers.euler import Euler
from keras_transformer.diffusion.samplers.sampler import Sampler

SAMPLERS: dict[str, type[Sampler]] = {
    "euler": Euler,
    "ddim": DDIM,
    "dpm_solver_pp": DPMSolverPP,
}
