"""Vocal tract length perturbation."""

from __future__ import annotations

from typing import Unpack

import keras
from keras import ops

from keras_transformer.audio.random_augmentation import RandomAugmentation, check_range
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, LayerOptions, Tensor


@serializable
class VocalTractPerturbation(RandomAugmentation):
    """Vocal tract length perturbation: stretches spectrograms along the frequency axis, in training only.

    Bin m becomes `x[α m]`, with linear interpolation, and the last bin beyond the end. Each spectrogram has its own α. The
    tempo does not change, and the pitch changes with the other frequencies; `RandomSound` changes tempo and pitch.

    Args:
        warp: float in [0, 1). Maximum deviation of α from 1. Default 0.1.
        seed: int or None.

    Call arguments:
        inputs: float `(B, frames, M)`.

    Returns:
        The same shape; the inputs, unless `training`.

    Raises:
        ValueError: `warp` out of its range.

    Example:

    >>> import numpy as np
    >>> spectrogram = np.array([[[0.0, 1.0, 2.0, 3.0]]], "float32")
    >>> VocalTractPerturbation(0.2)(spectrogram, training=False).numpy().tolist()
    [[[0.0, 1.0, 2.0, 3.0]]]

    Reference: Jaitly and Hinton, Vocal Tract Length Perturbation (VTLP) improves speech recognition, ICML workshop 2013. The
    paper warps frequencies in Hz, and less above a limit; here all mel bins are warped equally.
    """

    def __init__(self, warp: float = 0.1, seed: int | None = None, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(seed, **kwargs)
        check_range(1, warp=warp)
        self.warp = warp

    def augment(self, spectrogram: Tensor) -> Tensor:
        batch, _, bins = ops.shape(spectrogram)
        factors = keras.random.uniform((batch, 1), 1.0 - self.warp, 1.0 + self.warp, seed=self.seed_generator)
        indices = ops.minimum(factors * ops.expand_dims(ops.arange(bins, dtype="float32"), 0), bins - 1.0)
        before = ops.floor(indices)
        share = ops.expand_dims(ops.cast(indices - before, spectrogram.dtype), 1)
        low = ops.cast(before, "int32")
        high = ops.minimum(low + 1, bins - 1)
        return (1.0 - share) * _bins(spectrogram, low) + share * _bins(spectrogram, high)

    def get_config(self) -> Config:
        return {**super().get_config(), "warp": self.warp}


def _bins(spectrogram, indices):
    """Returns the bins `(B, M)` of every frame."""
    indices = ops.broadcast_to(ops.expand_dims(indices, 1), ops.shape(spectrogram))
    return ops.take_along_axis(spectrogram, indices, axis=2)
