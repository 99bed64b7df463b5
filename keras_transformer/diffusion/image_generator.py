"""Image generation: the sampler and the denoiser as one model."""

from __future__ import annotations

import keras

from keras_transformer.diffusion.denoising_loop import DenoisingLoop
from keras_transformer.diffusion.label_embedding import LabelEmbedding
from keras_transformer.diffusion.processes.process import NoiseProcess
from keras_transformer.diffusion.samplers.sampler import Sampler
from keras_transformer.utils.types import Config


def ImageGenerator(
    denoiser: keras.Model,
    process: str | NoiseProcess | Config = "rectified_flow",
    sampler: str | Sampler | Config = "euler",
    *,
    num_steps: int = 50,
    guidance_scale: float = 1.0,
    data_range: tuple[float, float] | None = None,
    decoder: keras.Model | None = None,
    latent_scale: float = 1.0,
    name: str = "image_generator",
) -> keras.Model:
    """Image generator: noise and classes to images, with the whole loop of a sampler in the graph.

    It has the weights of the denoiser, and is exported like any model: one signature from noise to images. All randomness is
    in its inputs.

    Args:
        denoiser: `keras.Model`, such as `models.DiT`, trained with `DenoisingTrainer`.
        process: a name in `PROCESSES`, an instance or its config: that of the training. Default "rectified_flow".
        sampler: a name in `SAMPLERS`, an instance or its config. Default "euler".
        num_steps: int >= 1. Default 50.
        guidance_scale: float. Scale of classifier-free guidance; 1 (the default) for none.
        data_range: pair of floats, or None. Range to which the predicted images are clipped at each step. Default None.
        decoder: `keras.Model` from latents to images, such as that of `models.ImageAutoencoder`, for a denoiser of latents;
            None for one of images.
        latent_scale: float > 0. What the latents were multiplied by for the denoiser. Default 1.
        name: str.

    Returns:
        `keras.Model`: {"noise": float `(B, height, width, channels)`, the conditions of the denoiser, such as "labels":
        int32 `(B,)`, with guidance also "negative_NAME" of each but labels, and, if the sampler draws new noise,
        "step_noise": float `(B, num_steps - 1, height, width, channels)`} to "images", float32
        `(B, height, width, channels)`; with a decoder, noise has the shape of latents. Noise is standard normal; the label
        of no class is the number of classes.

    Raises:
        ValueError: other inputs of the denoiser; guidance for one without conditions; an unknown process or sampler.

    Example:

    >>> import keras
    >>> from keras_transformer import models
    >>> denoiser = models.DiT(models.Size(1, 8, 2, 16), 4, 8, num_channels=1, num_classes=3)
    >>> generator = ImageGenerator(denoiser, sampler="dpm_solver_pp", num_steps=4, guidance_scale=1.5)
    >>> noise = keras.random.normal((2, 8, 8, 1), seed=1)
    >>> tuple(generator({"noise": noise, "labels": keras.ops.array([0, 2])}).shape)
    (2, 8, 8, 1)

    Reference: see `DenoisingLoop` and the samplers.
    """
    classes = [layer.num_classes for layer in denoiser.layers if isinstance(layer, LabelEmbedding)]
    loop = DenoisingLoop(
        denoiser,
        process,
        sampler,
        num_steps,
        guidance_scale,
        no_class=classes[0] if classes else None,
        data_range=data_range,
        name="images",
    )
    shape = tuple(denoiser.input["images"].shape[1:])
    others = {"noise": shape, "step_noise": (num_steps - 1, *shape)}
    inputs = {}
    for each in loop.input_names:
        like = None if each in others else denoiser.input[each.removeprefix("negative_")]
        inputs[each] = keras.Input(
            others[each] if like is None else like.shape[1:], dtype="float32" if like is None else like.dtype, name=each
        )
    images = loop(inputs)
    if decoder is not None:
        images = decoder(keras.layers.Rescaling(1.0 / latent_scale, dtype="float32", name="latents")(images))
    return keras.Model(inputs, images, name=name)
