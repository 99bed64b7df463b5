"""Processes that turn data into noise, each with what a denoiser learns to predict."""

from __future__ import annotations

from keras_transformer.diffusion.processes.ddpm import DDPM
from keras_transformer.diffusion.processes.process import NoiseProcess
from keras_transformer.diffusion.processes.rectified_flow import RectifiedFlow

PROCESSES: dict[str, type[NoiseProcess]] = {
    "rectified_flow": RectifiedFlow,
    "ddpm": DDPM,
}
