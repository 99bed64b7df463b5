"""Voices of other speakers, made of those at hand."""

import keras
from keras import ops

from keras_transformer.processor_config import is_number
from keras_transformer.saving import serializable


@serializable
class VocalTractPerturbation(keras.layers.Layer):
    """Spectrograms stretched or squeezed along the frequencies, as a shorter or longer throat does; in training alone.

    Bin m becomes `x[α m]`, linearly between bins; beyond the last one it is the last. Each spectrogram has its own α. The
    pace stays, and the pitch moves with the rest: `RandomSound` changes both together.

    Args:
        warp: float in [0, 1). α lies within this of 1.
        seed: int or None.

    Call arguments:
        spectrogram: float `(B, frames, M)`.

    Returns:
        The same shape; what came in, where it does not train.

    Raises:
        ValueError: `warp` out of its range.

    Example:

    >>> import numpy as np
    >>> spectrogram = np.array([[[0.0, 1.0, 2.0, 3.0]]], "float32")
    >>> VocalTractPerturbation(0.2)(spectrogram, training=False).numpy().tolist()
    [[[0.0, 1.0, 2.0, 3.0]]]

    Reference: Jaitly and Hinton, Vocal Tract Length Perturbation (VTLP) improves speech recognition, ICML workshop 2013;
    there Hertz are stretched, up to a frequency beyond which less and less, here mel, all alike.
    """

    def __init__(self, warp=0.1, seed=None, **kwargs):
        super().__init__(**kwargs)
        if not is_number(warp) or not 0 <= warp < 1:
            raise ValueError(f"warp must be a number from 0 to below 1. Received: {warp!r}")
        self.warp = warp
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed)

    def call(self, spectrogram, training=None):
        if not training:
            return spectrogram
        batch, _, bins = ops.shape(spectrogram)
        factors = keras.random.uniform((batch, 1), 1.0 - self.warp, 1.0 + self.warp, seed=self.seed_generator)
        places = ops.minimum(factors * ops.expand_dims(ops.arange(bins, dtype="float32"), 0), bins - 1.0)
        before = ops.floor(places)
        share = ops.expand_dims(ops.cast(places - before, spectrogram.dtype), 1)
        low = ops.cast(before, "int32")
        high = ops.minimum(low + 1, bins - 1)
        return (1.0 - share) * _bins(spectrogram, low) + share * _bins(spectrogram, high)

    def compute_output_shape(self, spectrogram_shape):
        return spectrogram_shape

    def get_config(self):
        return {**super().get_config(), "warp": self.warp, "seed": self.seed}


def _bins(spectrogram, indices):
    """The bins `(B, M)` of every frame."""
    indices = ops.broadcast_to(ops.expand_dims(indices, 1), ops.shape(spectrogram))
    return ops.take_along_axis(spectrogram, indices, axis=2)
