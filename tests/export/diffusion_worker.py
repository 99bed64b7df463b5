"""Exports a denoiser, an encoder, and loops of samplers: `diffusion_worker.py OUT`. Writes results.json and bundles."""

import json
import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np

from keras_transformer import diffusion, models
from keras_transformer.export import export


def make_denoiser():
    return with_random_weights(models.DiT(models.Size(2, 16, 2, 24), 4, 8, num_channels=3, num_classes=5))


def make_text_denoiser():
    size = models.Size(2, 16, 2, 24)
    options = {"num_single_layers": 1, "text_dim": 5, "pooled_text_dim": 7, "rotary_features": (2, 4)}
    return with_random_weights(models.Flux(size, 4, (8, 12), num_channels=3, **options))


def with_random_weights(model):
    random = np.random.default_rng(0)
    for weight in model.trainable_weights:
        weight.assign(random.normal(0.02, 0.15, weight.shape))
    return model


def main(out):
    keras.utils.set_random_seed(0)
    denoiser = make_denoiser()
    autoencoder = models.ImageAutoencoder(16, widths=(4, 8), blocks_per_level=1, latent_channels=3, num_groups=2)
    noisy = diffusion.DDIM(eta=1.0)
    exported = {
        "denoiser": denoiser,
        "flow": diffusion.ImageGenerator(denoiser, "rectified_flow", "euler", num_steps=5, guidance_scale=2.0),
        "ddpm": diffusion.ImageGenerator(denoiser, "ddpm", noisy, num_steps=3, data_range=(-2.0, 2.0)),
        "latents": diffusion.ImageGenerator(
            denoiser,
            "rectified_flow",
            "dpm_solver_pp",
            num_steps=4,
            decoder=autoencoder.get_layer("decoder"),
            latent_scale=2.0,
        ),
        "encoder": autoencoder.get_layer("encoder"),
        # In a loop over dynamic shapes, LiteRT's first call of new shapes may be wrong.
        "texts": diffusion.ImageGenerator(make_text_denoiser(), num_steps=4, guidance_scale=2.0),
    }
    results = {}
    for name, model in exported.items():
        results[name] = export(model, out / name, progress=False).to_dict()
    exported["flow"].save(out / "flow.keras")
    (out / "results.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
