"""The normal distribution of the latents of an image."""

from __future__ import annotations

from typing import Unpack

import keras
from keras import ops

from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, LayerOptions, Shape, Tensor

# Log variances are clipped, as in the published code.
_LEAST, _MOST = -30.0, 20.0


@serializable
class LatentDistribution(keras.layers.Layer):
    """Latents of a variational autoencoder: a sample in training, the mean otherwise.

    Its loss in training is `kl_weight · ½ Σ (μ² + σ² - 1 - log σ²)`, summed over the numbers of an image and averaged over
    the images: the divergence from a standard normal distribution.

    Args:
        kl_weight: float >= 0. Default 1e-6.
        seed: int or None. Seed of the samples.

    Call arguments:
        moments: float `(B, height, width, 2 · channels)`: means, then logarithms of variances, which are clipped to
            [-30, 20].

    Returns:
        float32 `(B, height, width, channels)`, under every dtype policy.

    Raises:
        ValueError: an odd number of channels.

    Example:

    >>> import numpy as np
    >>> moments = np.array([[[[0.5, -1.0, 0.0, 2.0]]]])
    >>> LatentDistribution()(moments).numpy().ravel().tolist()
    [0.5, -1.0]

    Reference: Kingma and Welling, arXiv 1312.6114, appendix B; Rombach et al., Latent Diffusion, arXiv 2112.10752, section
    3.1 and appendix G.
    """

    def __init__(self, kl_weight: float = 1e-6, seed: int | None = None, **kwargs: Unpack[LayerOptions]) -> None:
        kwargs.setdefault("dtype", "float32")
        super().__init__(**kwargs)
        self.kl_weight = float(kl_weight)
        self.seed = seed
        self._seeds = keras.random.SeedGenerator(seed)

    def build(self, input_shape: Shape) -> None:
        if input_shape[-1] % 2:
            raise ValueError(f"Moments have an even number of channels. Received: {input_shape[-1]}")

    def call(self, moments: Tensor, training: bool | None = None) -> Tensor:
        mean, log_variance = ops.split(moments, 2, axis=-1)
        if not training:
            return mean
        log_variance = ops.clip(log_variance, _LEAST, _MOST)
        divergence = ops.square(mean) + ops.exp(log_variance) - 1.0 - log_variance
        self.add_loss(self.kl_weight * 0.5 * ops.mean(ops.sum(divergence, axis=(1, 2, 3))))
        return mean + ops.exp(0.5 * log_variance) * keras.random.normal(ops.shape(mean), seed=self._seeds)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (*input_shape[:-1], input_shape[-1] // 2)

    def get_config(self) -> Config:
        return {**super().get_config(), "kl_weight": self.kl_weight, "seed": self.seed}
