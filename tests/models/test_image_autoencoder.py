"""Autoencoder of images: parity with diffusers, its distribution of latents, and training."""

import json
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_transformer import diffusion, models
from keras_transformer.backend.devices.unallocated import unallocated

REFERENCE = np.load(Path(__file__).parents[1] / "data" / "image_autoencoder.npz")
OPTIONS = {"widths": (4, 8), "latent_channels": 3, "num_groups": 2}
BLOCK = {
    "1_norm": "norm1",
    "2_norm": "norm2",
    "convolution_1": "conv1",
    "convolution_2": "conv2",
    "shortcut": "conv_shortcut",
}
MIDDLE = {
    "attention_norm": "mid_block.attentions.0.group_norm",
    "attention/query": "mid_block.attentions.0.to_q",
    "attention/key": "mid_block.attentions.0.to_k",
    "attention/value": "mid_block.attentions.0.to_v",
    "attention/attention_output": "mid_block.attentions.0.to_out.0",
    "input": "conv_in",
    "output": "conv_out",
    "output_norm": "conv_norm_out",
    "pixels": "conv_out",
}


def of_torch(part, path):
    """The weight of diffusers for a path of ours, in our layout."""
    name, kind = path.rsplit("/", 1)
    kind = {"kernel": "weight", "gamma": "weight", "bias": "bias", "beta": "bias"}[kind]
    if name in ("moments", "input_latents"):
        theirs = {"moments": "quant_conv", "input_latents": "post_quant_conv"}[name]
    elif name in MIDDLE:
        theirs = f"{part}.{MIDDLE[name]}"
    elif name.startswith("middle_block_"):
        theirs = f"{part}.mid_block.resnets.{name[13]}.{BLOCK[name[15:]]}"
    else:
        _, level, rest = name.split("_", 2)
        blocks = f"{part}.down_blocks.{level}" if part == "encoder" else f"{part}.up_blocks.{1 - int(level)}"
        samplers = {"downsample": "downsamplers.0.conv", "convolution": "upsamplers.0.conv"}
        theirs = f"{blocks}.{samplers.get(rest) or f'resnets.{rest[6]}.{BLOCK[rest[8:]]}'}"
    value = REFERENCE[f"weights/{theirs}.{kind}"]
    return value.transpose(2, 3, 1, 0) if value.ndim == 4 else value.T


@pytest.fixture(scope="module")
def model():
    model = models.ImageAutoencoder((6, 8), seed=0, **OPTIONS)
    for part in ("encoder", "decoder"):
        for weight in model.get_layer(part).trainable_weights:
            weight.assign(of_torch(part, weight.path).reshape(weight.shape))
    return model


def test_latents_and_images_are_those_of_diffusers(model):
    assert json.loads(str(REFERENCE["config"]))["class"] == "AutoencoderKL"
    latents = model.get_layer("encoder").predict(REFERENCE["images"], verbose=0)
    for found, name in ((latents, "latents"), (model.predict(REFERENCE["images"], verbose=0), "output")):
        expected = REFERENCE[name]
        np.testing.assert_allclose(found, expected, atol=2e-6 * np.abs(expected).max(), rtol=0)


def test_training_samples_the_latents(model):
    """From the distribution of the reference: with one number of each for all, of 400 copies of an image."""
    encoder = model.get_layer("encoder")
    images = keras.ops.convert_to_tensor(np.repeat(REFERENCE["images"][:1], 400, axis=0))
    samples = keras.ops.convert_to_numpy(encoder(images, training=True))
    mean, deviation = REFERENCE["latents"][0], np.exp(0.5 * np.clip(REFERENCE["log_variance"][0], -30, 20))
    standard = (samples - mean) / deviation
    assert abs(standard.mean()) < 0.02
    assert abs(standard.std() - 1) < 0.02
    # A mean of 400, of each of 72 numbers.
    assert np.abs(standard.mean(axis=0)).max() < 0.2


def test_the_divergence_is_a_loss():
    moments = np.array([[[[0.5, -1.0, 0.3, 25.0]]], [[[0.0, 2.0, -40.0, 0.0]]]])
    layer = diffusion.LatentDistribution(kl_weight=0.25)
    layer(moments, training=True)
    mean, logs = np.split(moments, 2, axis=-1)
    logs = np.clip(logs, -30, 20)
    expected = 0.25 * 0.5 * (mean**2 + np.exp(logs) - 1 - logs).sum(axis=(1, 2, 3)).mean()
    np.testing.assert_allclose(float(layer.losses[0]), expected, rtol=1e-6)
    assert layer(moments, training=False).shape == (2, 1, 1, 2)
    with pytest.raises(ValueError, match="even number of channels"):
        diffusion.LatentDistribution()(np.zeros((1, 1, 1, 3)))


def test_published_size():
    """That of Stable Diffusion 1: 83,653,863 parameters."""
    with unallocated():
        assert models.ImageAutoencoder().count_params() == 83_653_863


@pytest.mark.exhaustive
def test_training_restores_images():
    keras.utils.set_random_seed(0)
    random = np.random.default_rng(0)
    images = np.sin(random.uniform(0, 3, (64, 1, 1, 2)) + np.arange(8)[:, None, None] / 2).repeat(8, axis=2)
    model = models.ImageAutoencoder(8, num_channels=2, widths=(8, 8), blocks_per_level=1, num_groups=2, seed=1)
    model.compile(keras.optimizers.Adam(3e-3), "mse", jit_compile=False)
    before = model.evaluate(images, images, verbose=0)
    model.fit(images, images, batch_size=16, epochs=30, verbose=0)
    assert model.evaluate(images, images, verbose=0) < 0.15 * before


@pytest.mark.exhaustive
def test_a_generator_of_latents_draws_images(model):
    denoiser = models.DiT(models.Size(1, 8, 2, 16), 1, (3, 4), num_channels=3, num_classes=None)
    decoder = model.get_layer("decoder")
    plain = diffusion.ImageGenerator(denoiser, num_steps=2)
    whole = diffusion.ImageGenerator(denoiser, num_steps=2, decoder=decoder, latent_scale=0.5)
    noise = {"noise": np.random.default_rng(0).normal(size=(2, 3, 4, 3)).astype("float32")}
    expected = decoder.predict(plain.predict(noise, verbose=0) / 0.5, verbose=0)
    found = whole.predict(noise, verbose=0)
    assert found.shape == (2, 6, 8, 3)
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize(
    "options, message", [({"image_size": (6, 7)}, "multiple of 2"), ({"widths": (4, 9)}, "num_groups=2")]
)
def test_sides_and_widths_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        models.ImageAutoencoder(**{"image_size": (6, 8), **OPTIONS, **options})
