"""Base class of the layers from samples to mel spectrograms."""

from __future__ import annotations

import keras

from keras_transformer.audio.errors import AudioError
from keras_transformer.utils.processor_config import is_count
from keras_transformer.utils.types import Config

_COUNTS = ("num_mel_bins", "sample_rate", "frame_length", "hop_length", "fft_length")


class MelSpectrogram(keras.layers.Layer):
    """Base of layers that take samples `(B, samples)`, and the checks of what they have in common.

    Args:
        num_mel_bins, sample_rate, frame_length, hop_length, fft_length: ints >= 1, as in `LogMel`.

    Raises:
        ValueError: one of them is none.
    """

    def __init__(
        self, num_mel_bins: int, sample_rate: int, frame_length: int, hop_length: int, fft_length: int, **kwargs: object
    ) -> None:
        # No autocast: samples keep their precision.
        super().__init__(autocast=False, **kwargs)
        self.num_mel_bins = num_mel_bins
        self.sample_rate = sample_rate
        self.frame_length = frame_length
        self.hop_length = hop_length
        self.fft_length = fft_length
        for name in _COUNTS:
            if not is_count(getattr(self, name)):
                raise ValueError(f"{name} must be an int of at least 1. Received: {getattr(self, name)!r}")

    def _check_shape(self, shape):
        if len(shape) != 2:
            raise AudioError(f"{self.name} takes samples of shape (B, samples). Received shape: {tuple(shape)}")

    def get_config(self) -> Config:
        return {**super().get_config(), **{name: getattr(self, name) for name in _COUNTS}}
