"""The variational autoencoder of latent diffusion."""

from __future__ import annotations

from collections.abc import Sequence

import keras

from keras_transformer.attention import MultiHeadAttention
from keras_transformer.diffusion.latent_distribution import LatentDistribution
from keras_transformer.models.building.image_stack import image_input
from keras_transformer.utils.types import Tensor
from keras_transformer.vision.patches.patch_embedding import pair_of

# Rombach et al., the encoder of Stable Diffusion.
WIDTHS = (128, 256, 512, 512)


def ImageAutoencoder(
    image_size: int | tuple[int, int] = 256,
    *,
    num_channels: int = 3,
    widths: Sequence[int] = WIDTHS,
    blocks_per_level: int = 2,
    latent_channels: int = 4,
    kl_weight: float = 1e-6,
    num_groups: int = 32,
    seed: int | None = None,
    name: str = "image_autoencoder",
) -> keras.Model:
    """Autoencoder of images, for diffusion in its latents: images to images, by way of fewer pixels.

    The parts are models: `get_layer("encoder")` from images to latents, and `get_layer("decoder")` back. Train the whole on
    pairs of the same images; the divergence of the latents from a standard normal distribution is a loss of its own.
    Latents are samples in training, and means otherwise.

    Args:
        image_size: int or pair of ints, a multiple of `2 ** (len(widths) - 1)`. Pixels.
        num_channels: int. Of the images.
        widths: sequence of ints. Channels of each level, all multiples of `num_groups`; between levels, sides are halved.
        blocks_per_level: int >= 1. Residual blocks of each level of the encoder; the decoder has one more.
        latent_channels: int >= 1.
        kl_weight: float >= 0. See `diffusion.LatentDistribution`.
        num_groups: int. Of the group norms.
        seed: int or None. Seed of the samples.
        name: str.

    Returns:
        `keras.Model`: "images", float `(B, height, width, channels)`, such as in [-1, 1], to float32 of the same shape.

    Raises:
        ValueError: sides that cannot be halved; widths that are no multiples of the number of groups.

    Example:

    >>> model = ImageAutoencoder(32, widths=(32, 64), blocks_per_level=1)
    >>> model.get_layer("encoder").output_shape
    (None, 16, 16, 4)

    Reference: Rombach et al., High-Resolution Image Synthesis with Latent Diffusion Models, arXiv 2112.10752, section 3.1
    and appendix E.1, as in its code. Deviation: no perceptual and no adversarial loss.
    """
    factor = 2 ** (len(widths) - 1)
    if any(side % factor for side in pair_of(image_size)):
        raise ValueError(f"image_size must be a multiple of {factor} for {len(widths)} levels. Received: {image_size}")
    if any(width % num_groups for width in widths):
        raise ValueError(f"widths must be multiples of num_groups={num_groups}. Received: {tuple(widths)}")
    blocks = _Blocks(num_groups)
    images = image_input(image_size, num_channels)
    encoder = _encoder(
        images,
        blocks,
        tuple(widths),
        blocks_per_level,
        LatentDistribution(kl_weight, seed, name="latents"),
        latent_channels,
    )
    decoder = _decoder(encoder.output, blocks, tuple(widths), blocks_per_level, num_channels)
    return keras.Model(images, decoder(encoder(images)), name=name)


def _encoder(images, blocks, widths, count, latents, channels):
    x = _convolution(widths[0], 3, "input")(images)
    for level, width in enumerate(widths):
        for index in range(count):
            x = blocks.residual(x, width, f"level_{level}_block_{index}")
        if level < len(widths) - 1:
            x = keras.layers.ZeroPadding2D(((0, 1), (0, 1)), name=f"level_{level}_padding")(x)
            x = keras.layers.Conv2D(width, 3, 2, name=f"level_{level}_downsample")(x)
    x = blocks.activated(blocks.middle(x), "output")
    x = _convolution(2 * channels, 3, "output")(x)
    moments = _convolution(2 * channels, 1, "moments")(x)
    return keras.Model(images, latents(moments), name="encoder")


def _decoder(like, blocks, widths, count, num_channels):
    latents = keras.Input(like.shape[1:], name="latents")
    x = _convolution(latents.shape[-1], 1, "input_latents")(latents)
    x = blocks.middle(_convolution(widths[-1], 3, "input")(x))
    for level, width in reversed(list(enumerate(widths))):
        for index in range(count + 1):
            x = blocks.residual(x, width, f"level_{level}_block_{index}")
        if level:
            x = keras.layers.UpSampling2D(2, name=f"level_{level}_upsample")(x)
            x = _convolution(width, 3, f"level_{level}_convolution")(x)
    x = keras.layers.Conv2D(num_channels, 3, padding="same", dtype="float32", name="pixels")(
        blocks.activated(x, "output")
    )
    return keras.Model(latents, x, name="decoder")


def _convolution(filters, size, name):
    return keras.layers.Conv2D(filters, size, padding="same", name=name)


class _Blocks:
    """The blocks of both parts.

    Args:
        num_groups: int. Of the group norms.
    """

    def __init__(self, num_groups: int) -> None:
        self._num_groups = num_groups

    def activated(self, x: Tensor, name: str) -> Tensor:
        """Group norm and SiLU."""
        return keras.layers.Activation("silu", name=f"{name}_activation")(self._normalized(x, name))

    def residual(self, x: Tensor, width: int, name: str) -> Tensor:
        """Two convolutions, with a projection of the input where its width changes."""
        y = _convolution(width, 3, f"{name}_convolution_1")(self.activated(x, f"{name}_1"))
        y = _convolution(width, 3, f"{name}_convolution_2")(self.activated(y, f"{name}_2"))
        if x.shape[-1] != width:
            x = _convolution(width, 1, f"{name}_shortcut")(x)
        return keras.layers.Add(name=f"{name}_sum")([x, y])

    def middle(self, x: Tensor) -> Tensor:
        """A residual block, attention of one head over all pixels, and a residual block."""
        height, width, channels = x.shape[1:]
        x = self.residual(x, channels, "middle_block_0")
        tokens = keras.layers.Reshape((height * width, channels), name="tokens")(self._normalized(x, "attention"))
        tokens = MultiHeadAttention(1, channels, name="attention")(tokens, tokens)
        pixels = keras.layers.Reshape((height, width, channels), name="attention_pixels")(tokens)
        x = keras.layers.Add(name="attention_sum")([x, pixels])
        return self.residual(x, channels, "middle_block_1")

    def _normalized(self, x: Tensor, name: str) -> Tensor:
        return keras.layers.GroupNormalization(self._num_groups, epsilon=1e-6, name=f"{name}_norm")(x)
