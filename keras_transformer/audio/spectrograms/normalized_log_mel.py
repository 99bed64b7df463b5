"""Log-mel spectrograms with a mean of 0 and a variance of 1 in every bin."""

from __future__ import annotations

from typing import Unpack

import keras
from keras import ops

from keras_transformer.audio.spectrograms.spectrogram import (
    WINDOWS,
    MelSpectrogram,
    fourier_kernel,
    mel_filters,
    power_spectrum,
)
from keras_transformer.utils.processor_config import is_number
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, LayerOptions, Path, Shape, Tensor

# Added to the power, so that silence has a logarithm; added to the deviation of a bin.
_FLOOR, _EPSILON = 2.0**-24, 1e-5


@serializable
class NormalizedLogMel(MelSpectrogram):
    """Log-mel spectrograms of recordings, normalized over time: `(x - μ) / (σ + 1e-5)` in every bin.

    `x = log(|DFT(window · frame)|² · filters + 2⁻²⁴)`, of samples with pre-emphasis, `s_t - p s_{t-1}`. Frames are centered
    on every `hop_length`th sample, with silence around the recording. Mean and variance are those of the real frames, so
    that a row of a batch gives what it gives alone. All is computed in float32 under any dtype policy.

    Args:
        num_mel_bins: int >= 1. Number of filters M. Default 80.
        sample_rate: int, in Hz, of the inputs. Default 16,000.
        frame_length: int >= 2. Samples per frame, under a symmetric Hann window. Default 400.
        hop_length: int. Samples between the starts of frames. Default 160.
        fft_length: even int. Length of the transform, to which frames are zero-padded. Default 512.
        preemphasis: float p. 0 for none. Default 0.97.

    Call arguments:
        samples: float `(B, samples)`, in [-1, 1] for recordings.
        padding_mask: boolean `(B, samples)`, True = a real sample, padded on the right; None for all real.

    Returns:
        Pair of spectrograms `(B, samples // hop_length + 1, M)`, 0 at padding, and their padding mask, boolean
        `(B, frames)`: a recording of n samples has `n // hop_length` real frames.

    Raises:
        ValueError: an argument out of its range.
        AudioError: samples of another rank.

    Export: all three formats, with a fixed or dynamic number of samples.

    Example:

    >>> import numpy as np
    >>> features, mask = NormalizedLogMel()(np.ones((1, 1600), "float32"))
    >>> tuple(features.shape), int(np.sum(mask))
    ((1, 11, 80), 10)

    Reference: the preprocessor of NVIDIA NeMo with "per_feature" normalization; equal to transformers'
    `ParakeetFeatureExtractor`, except that a recording of one frame has no variance there, and becomes NaN.
    """

    def __init__(
        self,
        num_mel_bins: int = 80,
        sample_rate: int = 16_000,
        frame_length: int = 400,
        hop_length: int = 160,
        fft_length: int = 512,
        preemphasis: float = 0.97,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(num_mel_bins, sample_rate, frame_length, hop_length, fft_length, **kwargs)
        self.preemphasis = preemphasis
        self._check()
        corners = (0.0, sample_rate / 2)
        self._filters = mel_filters(num_mel_bins, fft_length, sample_rate, corners, "slaney").astype("float32")
        self._kernel = fourier_kernel(frame_length, hop_length, fft_length, WINDOWS["hann"], frame_length - 1)

    def _check(self):
        if self.fft_length % 2 or not 2 <= self.frame_length <= self.fft_length:
            raise ValueError(
                "fft_length must be even, and frame_length from 2 to it. Received: "
                f"fft_length={self.fft_length}, frame_length={self.frame_length}"
            )
        if not is_number(self.preemphasis):
            raise ValueError(f"preemphasis must be a number. Received: {self.preemphasis!r}")

    @classmethod
    def from_huggingface(cls, folder: Path, **kwargs: Unpack[LayerOptions]) -> NormalizedLogMel:
        """Reads the feature extractor of a Hugging Face checkpoint.

        Args:
            folder: str or path of a folder with `preprocessor_config.json`, or with a `processor_config.json` that has a
                "feature_extractor", of type `ParakeetFeatureExtractor`.
            **kwargs: Keras's layer arguments, such as `name`.

        Returns:
            A `NormalizedLogMel`.

        Raises:
            FeatureExtractorError: no such file, another type, or a setting that is invalid or not supported.
        """
        from keras_transformer.audio.hugging_face import normalized_settings

        return cls(**normalized_settings(folder), **kwargs)

    def call(self, samples: Tensor, padding_mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        self._check_shape(samples.shape)
        samples = ops.cast(samples, "float32")
        real = ops.ones_like(samples, dtype="bool") if padding_mask is None else ops.cast(padding_mask, "bool")
        frames = self._num_frames(ops.shape(samples)[1])
        power = power_spectrum(self._emphasized(samples, real), frames, self._kernel)
        x = ops.log(ops.matmul(power, ops.convert_to_tensor(self._filters)) + _FLOOR)
        lengths = ops.sum(ops.cast(real, "int32"), axis=1, keepdims=True) // self.hop_length
        mask = ops.less(ops.expand_dims(ops.arange(frames, dtype="int32"), 0), lengths)
        return ops.cast(_normalized(x, mask, lengths), self.compute_dtype), mask

    def _emphasized(self, samples, real):
        """Returns the samples with pre-emphasis and silence around them."""
        before = ops.pad(samples, ((0, 0), (1, 0)))[:, :-1]
        samples = ops.where(real, samples - self.preemphasis * before, 0.0)
        # A frame is in the middle of its transform.
        start = self.fft_length // 2 - (self.fft_length - self.frame_length) // 2
        return ops.pad(samples, ((0, 0), (start, self.frame_length)))

    def _num_frames(self, samples):
        return samples // self.hop_length + 1

    def compute_output_spec(
        self, samples: Tensor, padding_mask: Tensor | None = None
    ) -> tuple[keras.KerasTensor, keras.KerasTensor]:
        self._check_shape(samples.shape)
        frames = None if samples.shape[1] is None else self._num_frames(samples.shape[1])
        shape: Shape = (samples.shape[0], frames, self.num_mel_bins)
        return keras.KerasTensor(shape, self.compute_dtype), keras.KerasTensor(shape[:2], "bool")

    def get_config(self) -> Config:
        return {**super().get_config(), "preemphasis": self.preemphasis}


def _normalized(x, mask, lengths):
    """Returns spectrograms with mean 0 and variance 1 over the real frames, and 0 at padding."""
    real, count = ops.expand_dims(mask, -1), ops.expand_dims(ops.cast(lengths, "float32"), -1)
    mean = ops.sum(ops.where(real, x, 0.0), axis=1, keepdims=True) / ops.maximum(count, 1.0)
    x = ops.where(real, x - mean, 0.0)
    variance = ops.sum(ops.square(x), axis=1, keepdims=True) / ops.maximum(count - 1.0, 1.0)
    return x / (ops.sqrt(variance) + _EPSILON)
