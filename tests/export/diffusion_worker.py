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
    random = np.random.default_rng(0)
    model = models.DiT(models.Size(2, 16, 2, 24), 4, 8, num_channels=3, num_classes=5)
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
    }
    results = {}
    for name, model in exported.items():
        results[name] = export(model, out / name, progress=False).to_dict()
    exported["flow"].save(out / "flow.keras")
    (out / "results.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
