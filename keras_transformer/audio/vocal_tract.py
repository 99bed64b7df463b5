"""Voices of other speakers, made of those at hand."""

from typing import Any

import keras
from keras import ops

from keras_transformer.audio.random_change import RandomChange, check_range
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, Tensor


@serializable
class VocalTractPerturbation(RandomChange):
    """Spectrograms stretched or squeezed along the frequencies, as a shorter or longer throat does; in training alone.

    Bin m becomes `x[α m]`, linearly between bins; beyond the last one it is the last. Each spectrogram has its own α. The
    pace stays, and the pitch moves with the rest: `RandomSound` changes both together.

    Args:
        warp: float in [0, 1). α lies within this of 1.
        seed: int or None.

    Call arguments:
        inputs: float `(B, frames, M)`.

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

    def __init__(self, warp: float = 0.1, seed: int | None = None, **kwargs: Any) -> None:
        super().__init__(seed, **kwargs)
        check_range(1, warp=warp)
        self.warp = warp

    def change(self, spectrogram: Tensor):
        batch, _, bins = ops.shape(spectrogram)
        factors = keras.random.uniform((batch, 1), 1.0 - self.warp, 1.0 + self.warp, seed=self.seed_generator)
        places = ops.minimum(factors * ops.expand_dims(ops.arange(bins, dtype="float32"), 0), bins - 1.0)
        before = ops.floor(places)
        share = ops.expand_dims(ops.cast(places - before, spectrogram.dtype), 1)
        low = ops.cast(before, "int32")
        high = ops.minimum(low + 1, bins - 1)
        return (1.0 - share) * _bins(spectrogram, low) + share * _bins(spectrogram, high)

    def get_config(self) -> Config:
        return {**super().get_config(), "warp": self.warp}


def _bins(spectrogram, indices):
    """The bins `(B, M)` of every frame."""
    indices = ops.broadcast_to(ops.expand_dims(indices, 1), ops.shape(spectrogram))
    return ops.take_along_axis(spectrogram, indices, axis=2)
