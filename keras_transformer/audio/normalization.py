"""Normalization of log spectrograms for loudness and recording conditions."""

from __future__ import annotations

from typing import Unpack

import keras
from keras import ops

from keras_transformer.utils.processor_config import is_number
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, LayerOptions, Shape, Tensor


@serializable
class SoundNormalization(keras.layers.Layer):
    """Mean and variance normalization of the active frames of log spectrograms: `max((x - μ) / σ, -limit)`.

    μ and σ² are the weighted mean and variance of the frames, with weights
    `w_t = max(0, 1 - (max_s e_s - e_t) / active_range)`, where e_t is the mean of frame t. Silence has no weight,
    regardless of its length, and becomes `-limit`, regardless of its noise.

    Args:
        active_range: float > 0. Frames with a mean this much below the loudest have no weight, in the unit of the
            spectrogram: 4 is 40 dB for log10. Default 4.
        limit: float > 0. Lower limit of the output, in standard deviations below the mean. Default 3.
        per_bin: bool. Whether each mel bin has its own mean, which removes the frequency response of microphone and room,
            but also what the vowels of a short word have in common. Default False.

    Call arguments:
        spectrogram: float `(B, frames, M)`: log spectrograms, as from `LogMel`.

    Returns:
        The same shape.

    Raises:
        ValueError: an argument out of its range.

    Export: all three formats.

    Example:

    >>> import numpy as np
    >>> frames = np.array([[[2.0, 4.0], [2.0, 4.0], [-9.0, -9.0]]], "float32")
    >>> np.round(SoundNormalization(limit=2.0)(frames), 3).tolist()
    [[[-1.0, 1.0], [-1.0, 1.0], [-2.0, -2.0]]]

    Reference: Viikki and Laurila, Cepstral domain segmental feature vector normalization, Speech Communication 25, 1998;
    here for log-mel bins, over the whole recording, and with weights instead of a decision about which frames are speech,
    which rounding errors could flip.
    """

    def __init__(
        self, active_range: float = 4.0, limit: float = 3.0, per_bin: bool = False, **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(**kwargs)
        for name, value in (("active_range", active_range), ("limit", limit)):
            if not is_number(value) or not value > 0:
                raise ValueError(f"{name} must be a number above 0. Received: {value!r}")
        self.active_range = active_range
        self.limit = limit
        self.per_bin = per_bin

    def call(self, spectrogram: Tensor) -> Tensor:
        x = ops.cast(spectrogram, "float32")
        loudness = ops.mean(x, axis=2, keepdims=True)
        below = ops.max(loudness, axis=1, keepdims=True) - loudness
        weights = ops.maximum(1.0 - below / self.active_range, 0.0)
        weights = weights / ops.sum(weights, axis=1, keepdims=True)
        mean = ops.sum(weights * x, axis=1, keepdims=True)
        if not self.per_bin:
            mean = ops.mean(mean, axis=2, keepdims=True)
        x = x - mean
        variance = ops.mean(ops.sum(weights * ops.square(x), axis=1, keepdims=True), axis=2, keepdims=True)
        # A silent recording has no deviation.
        x = x / ops.sqrt(variance + keras.config.epsilon())
        return ops.cast(ops.maximum(x, -self.limit), self.compute_dtype)

    def compute_output_shape(self, spectrogram_shape: Shape) -> Shape:
        return spectrogram_shape

    def get_config(self) -> Config:
        own = {name: getattr(self, name) for name in ("active_range", "limit", "per_bin")}
        return {**super().get_config(), **own}
