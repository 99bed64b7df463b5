"""Log-mel spectrograms as a layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

import numpy as np
from keras import ops

from keras_transformer.audio.spectrograms.spectrogram import (
    MEL_SCALES,
    WINDOWS,
    MelSpectrogram,
    fourier_kernel,
    mel_filters,
    power_spectrum,
)
from keras_transformer.utils.processor_config import is_count, is_number
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, LayerOptions, Path, Shape, Tensor

# Lower limit of the power, so that silence has a logarithm.
FLOOR = 1e-10
# Factors of the natural logarithm.
LOGARITHMS = {"natural": 1.0, "log10": 1 / np.log(10), "decibel": 10 / np.log(10), None: None}


@serializable
class LogMel(MelSpectrogram):
    """Log-mel spectrograms of recordings: `log(max(|DFT(window · frame)|² · filters, 1e-10))`.

    The layer is exported with the model. The Fourier transform of all frames is one convolution with the windowed cosines
    and sines, `O(samples · frame_length · fft_length / hop_length)`; an FFT would cost less, but the three export formats
    have no FFT in common. All is computed in float32 under any dtype policy.

    Args:
        num_mel_bins: int >= 1. Number of filters M. Default 80.
        sample_rate: int, in Hz, of the inputs. Default 16,000.
        frame_length: int. Samples per frame. Default 400.
        hop_length: int. Samples between the starts of frames. Default 160.
        fft_length: int or None. Length of the transform, to which frames are zero-padded. None: `frame_length`.
        window: "hann", "hamming" (both periodic) or "rectangular". Default "hann".
        frequency_range: pair of the lowest and the highest frequency of the filters, in Hz; None for half the sample rate.
        mel_scale: "slaney" (triangles of equal area) or "htk" (triangles of height 1). Default "slaney".
        log: "log10", "natural", "decibel" (ten times log10), or None for the power. Default "log10".
        padding: "reflect": half a frame is mirrored at both ends, so that frame `t` is centered on sample `t · hop_length`,
            with `samples // hop_length` frames. None: frames are within the samples. Recordings that are too short for
            mirroring, or for a frame, are padded with silence. Default "reflect".
        num_samples: int or None. Length to which recordings are truncated or padded with silence.
        normalization: None, or "whisper": raises values to at least the recording's maximum - 8, then `(x + 4) / 4`.
            Requires "log10".

    Call arguments:
        samples: float `(B, samples)`, in [-1, 1] for recordings.

    Returns:
        `(B, frames, M)`, in the compute dtype.

    Raises:
        ValueError: an argument out of its range.
        AudioError: samples of another rank.

    Export: all three formats, with a fixed or dynamic number of samples. If a loud pure tone leaves other filters almost
    empty, float32 sums differ between runtimes: by about 3e-5 of Whisper's values, which are limited to 8 below the maximum,
    and by more without this limit; by 1e-6 for noise. Pass `export` a `tolerance` for such probes.

    Example:

    >>> layer = LogMel.whisper(num_samples=16_000)
    >>> tuple(layer(np.zeros((2, 12_345), "float32")).shape)
    (2, 100, 80)

    Reference: Radford et al., arXiv 2212.04356, section 2.2, and the published code; Slaney's filters as in its
    `mel_filters`, equal to those of transformers' `WhisperFeatureExtractor`, whose outputs are `(M, frames)`.
    """

    def __init__(
        self,
        num_mel_bins: int = 80,
        sample_rate: int = 16_000,
        frame_length: int = 400,
        hop_length: int = 160,
        fft_length: int | None = None,
        window: str = "hann",
        frequency_range: Sequence[float | None] = (0.0, None),
        mel_scale: str = "slaney",
        log: str | None = "log10",
        padding: str | None = "reflect",
        num_samples: int | None = None,
        normalization: str | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        fft_length = frame_length if fft_length is None else fft_length
        super().__init__(num_mel_bins, sample_rate, frame_length, hop_length, fft_length, **kwargs)
        self.window = window
        self.frequency_range = tuple(frequency_range)
        self.mel_scale = mel_scale
        self.log = log
        self.padding = padding
        self.num_samples = num_samples
        self.normalization = normalization
        self._check()
        low, high = self.frequency_range
        corners = (low or 0.0, sample_rate / 2 if high is None else high)
        self._filters = mel_filters(num_mel_bins, fft_length, sample_rate, corners, mel_scale).astype("float32")
        self._kernel = fourier_kernel(frame_length, hop_length, fft_length, WINDOWS[window])

    def _check(self):
        if self.num_samples is not None and not is_count(self.num_samples):
            raise ValueError(f"num_samples must be an int of at least 1, or None. Received: {self.num_samples!r}")
        for name, choices in (
            ("window", WINDOWS),
            ("mel_scale", MEL_SCALES),
            ("log", LOGARITHMS),
            ("padding", ("reflect", None)),
            ("normalization", ("whisper", None)),
        ):
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} must be one of {tuple(choices)}. Received: {getattr(self, name)!r}")
        if self.fft_length < self.frame_length:
            raise ValueError(f"fft_length {self.fft_length} is shorter than frame_length {self.frame_length}.")
        if self.normalization and self.log != "log10":
            raise ValueError(f"normalization='whisper' requires log='log10'. Received: log={self.log!r}")
        low, high = self.frequency_range
        if low is None or not is_number(low) or not (high is None or is_number(high)):
            raise ValueError(f"frequency_range must be a pair of numbers. Received: {self.frequency_range!r}")
        if not 0 <= low < (self.sample_rate / 2 if high is None else high) <= self.sample_rate / 2:
            raise ValueError(
                f"frequency_range must be increasing, from 0 to half the sample rate. Received: {self.frequency_range!r}"
            )

    @classmethod
    def whisper(
        cls, num_mel_bins: int = 80, num_samples: int | None = 480_000, **kwargs: Unpack[LayerOptions]
    ) -> LogMel:
        """Returns the feature extractor of Whisper as a layer.

        Args:
            num_mel_bins: int. 80, or 128 since large-v3.
            num_samples: int or None. Length to truncate or pad to. Default: 30 seconds.
            **kwargs: Keras's layer arguments, such as `name`.

        Returns:
            A `LogMel`.
        """
        return cls(num_mel_bins, num_samples=num_samples, normalization="whisper", **kwargs)

    @classmethod
    def from_huggingface(cls, folder: Path, **kwargs: Unpack[LayerOptions]) -> LogMel:
        """Reads the feature extractor of a Hugging Face checkpoint.

        Args:
            folder: str or path of a folder with `preprocessor_config.json`, or with a `processor_config.json` that has a
                "feature_extractor", of type `WhisperFeatureExtractor`.
            **kwargs: Keras's layer arguments, such as `name`.

        Returns:
            A `LogMel`.

        Raises:
            FeatureExtractorError: no such file, another type, or a setting that is invalid or not supported.
        """
        from keras_transformer.audio.hugging_face import settings

        return cls(**settings(folder), **kwargs)

    def num_frames(self, num_samples: int | np.ndarray) -> int | np.ndarray:
        """Returns the number of frames of recordings, for masks over a batch.

        Args:
            num_samples: int or array of ints.

        Returns:
            int or array of ints.
        """
        if self.num_samples is not None:
            num_samples = np.minimum(num_samples, self.num_samples)
        frames = self._frames(np.maximum(num_samples, self._min_samples()))
        return frames if np.ndim(num_samples) else int(frames)

    def _min_samples(self):
        """Returns the smallest number of samples for a frame, and for mirroring."""
        if self.padding is None:
            return self.frame_length
        return max(self.frame_length // 2 + 1, self.hop_length)

    def build(self, samples_shape: Shape) -> None:
        self._check_shape(samples_shape)

    def call(self, samples: Tensor) -> Tensor:
        self._check_shape(samples.shape)
        samples = self._padded(ops.cast(samples, "float32"))
        power = self._power(samples)
        mel = ops.maximum(ops.matmul(power, ops.convert_to_tensor(self._filters)), FLOOR)
        if self.log is not None:
            mel = ops.log(mel) * float(LOGARITHMS[self.log])
        if self.normalization == "whisper":
            mel = ops.maximum(mel, ops.max(mel, axis=(1, 2), keepdims=True) - 8.0)
            mel = (mel + 4.0) / 4.0
        return ops.cast(mel, self.compute_dtype)

    def _padded(self, samples):
        """Truncates or pads to `num_samples`, or pads to the length of a frame."""
        least = self._min_samples()
        if self.num_samples is not None:
            samples = ops.pad(samples, ((0, 0), (0, self.num_samples)))[:, : self.num_samples]
            return ops.pad(samples, ((0, 0), (0, max(0, least - self.num_samples))))
        if samples.shape[1] is not None:
            return ops.pad(samples, ((0, 0), (0, max(0, least - samples.shape[1]))))
        length = ops.maximum(ops.shape(samples)[1], least)
        return ops.pad(samples, ((0, 0), (0, least)))[:, :length]

    def _power(self, samples):
        """Returns the power spectrum, `(B, frames, fft_length // 2 + 1)`."""
        frames = self._frames(ops.shape(samples)[1])
        half = self.frame_length // 2
        if self.padding == "reflect":
            samples = ops.pad(samples, ((0, 0), (half, half)), mode="reflect")
        return power_spectrum(samples, frames, self._kernel)

    def _frames(self, samples):
        if self.padding == "reflect":
            return samples // self.hop_length
        return (samples - self.frame_length) // self.hop_length + 1

    def compute_output_shape(self, samples_shape: Shape) -> Shape:
        self._check_shape(samples_shape)
        samples = samples_shape[1] if self.num_samples is None else self.num_samples
        frames = None if samples is None else self._frames(max(samples, self._min_samples()))
        return (samples_shape[0], frames, self.num_mel_bins)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "window": self.window,
            "frequency_range": self.frequency_range,
            "mel_scale": self.mel_scale,
            "log": self.log,
            "padding": self.padding,
            "num_samples": self.num_samples,
            "normalization": self.normalization,
        }
