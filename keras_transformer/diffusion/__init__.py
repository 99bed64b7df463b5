"""Diffusion: processes from data to noise, training of denoisers, and samplers, also as one graph."""

from keras_transformer.diffusion.denoising_loop import DenoisingLoop
from keras_transformer.diffusion.denoising_trainer import DenoisingTrainer
from keras_transformer.diffusion.frechet_distance import frechet_distance
from keras_transformer.diffusion.image_generator import ImageGenerator
from keras_transformer.diffusion.label_embedding import LabelEmbedding
from keras_transformer.diffusion.latent_distribution import LatentDistribution
from keras_transformer.diffusion.processes import PROCESSES
from keras_transformer.diffusion.processes.ddpm import DDPM
from keras_transformer.diffusion.processes.noise_schedules import NOISE_SCHEDULES, cosine_schedule, linear_schedule
from keras_transformer.diffusion.processes.process import NoiseProcess, ProcessPoints
from keras_transformer.diffusion.processes.rectified_flow import RectifiedFlow
from keras_transformer.diffusion.samplers import SAMPLERS
from keras_transformer.diffusion.samplers.ddim import DDIM
from keras_transformer.diffusion.samplers.dpm_solver import DPMSolverPP
from keras_transformer.diffusion.samplers.euler import Euler
from keras_transformer.diffusion.samplers.sampler import Sampler
from keras_transformer.diffusion.timestep_embedding import TimestepEmbedding

__all__ = [
    "DDIM",
    "DDPM",
    "NOISE_SCHEDULES",
    "PROCESSES",
    "SAMPLERS",
    "DPMSolverPP",
    "DenoisingLoop",
    "DenoisingTrainer",
    "Euler",
    "ImageGenerator",
    "LabelEmbedding",
    "LatentDistribution",
    "NoiseProcess",
    "ProcessPoints",
    "RectifiedFlow",
    "Sampler",
    "TimestepEmbedding",
    "cosine_schedule",
    "frechet_distance",
    "linear_schedule",
]
