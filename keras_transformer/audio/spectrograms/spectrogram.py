"""What mel spectrograms share: the Fourier transform of windowed frames as a convolution, filter banks, a base class."""

from __future__ import annotations

from collections.abc import Sequence

import keras
import numpy as np
from keras import ops

from keras_transformer.audio.errors import AudioError
from keras_transformer.utils.processor_config import is_count
from keras_transformer.utils.types import ArrayLike, Config, Tensor

WINDOWS = {"hann": (0.5, 0.5), "hamming": (0.54, 0.46), "rectangular": (1.0, 0.0)}


def fourier_kernel(
    frame_length: int, hop_length: int, fft_length: int, window: tuple[float, float], period: int | None = None
) -> np.ndarray:
    """Returns the kernel of a convolution over blocks of `hop_length` samples that computes the DFT of windowed frames.

    Args:
        frame_length, hop_length, fft_length: ints.
        window: pair `(a, b)` of the window `a - b cos(2 pi n / period)`.
        period: int. None for `frame_length`; one less for a symmetric window.

    Returns:
        float32 `(blocks per frame, hop_length, 2 (fft_length // 2 + 1))`: the real parts, then the imaginary ones.
    """
    times = np.arange(frame_length)
    shape = window[0] - window[1] * np.cos(2 * np.pi * times / (period or frame_length))
    # Reducing phases modulo one revolution before scaling to angles keeps these exact.
    phases = times[:, None] * np.arange(fft_length // 2 + 1) % fft_length / fft_length
    waves = np.concatenate([np.cos(2 * np.pi * phases), -np.sin(2 * np.pi * phases)], axis=1) * shape[:, None]
    blocks = -(-frame_length // hop_length)
    kernel = np.zeros((blocks * hop_length, waves.shape[1]))
    kernel[:frame_length] = waves
    return kernel.reshape(blocks, hop_length, -1).astype("float32")


def power_spectrum(samples: Tensor, frames: int | Tensor, kernel: np.ndarray) -> Tensor:
    """Returns the power `|DFT(window · frame)|²` of frames, the first of which begins with the first sample.

    Args:
        samples: float32 `(B, samples)`, as many as the frames have, or more.
        frames: int or scalar tensor: their number.
        kernel: as `fourier_kernel` returns it.

    Returns:
        float32 `(B, frames, fft_length // 2 + 1)`.
    """
    blocks_per_frame, hop_length, _ = kernel.shape
    # The last block may exceed the samples; the kernel is zero there.
    samples = ops.pad(samples, ((0, 0), (0, hop_length)))
    blocks = frames + blocks_per_frame - 1
    samples = ops.reshape(samples[:, : blocks * hop_length], (-1, blocks, hop_length))
    parts = ops.conv(samples, ops.convert_to_tensor(kernel), strides=1, padding="valid", data_format="channels_last")
    real, imaginary = ops.split(parts, 2, axis=-1)
    return real * real + imaginary * imaginary


# Slaney's scale is linear up to 1,000 Hz, with 200/3 Hz per mel, and logarithmic above, with 27 mel per factor of 6.4.
_HERTZ_PER_MEL, _BREAK, _MELS_PER_NEPER = 200 / 3, 1000.0, 27 / np.log(6.4)
MEL_SCALES = ("slaney", "htk")


def to_mel(hertz: ArrayLike, scale: str) -> np.ndarray:
    """Converts frequencies in Hz to mel.

    Example:

    >>> to_mel([500.0, 6400.0], "slaney").round(6).tolist()
    [7.5, 42.0]
    """
    hertz = np.asarray(hertz, "float64")
    if scale == "htk":
        return 2595 * np.log10(1 + hertz / 700)
    high = _BREAK / _HERTZ_PER_MEL + np.log(np.maximum(hertz, _BREAK) / _BREAK) * _MELS_PER_NEPER
    return np.where(hertz < _BREAK, hertz / _HERTZ_PER_MEL, high)


def from_mel(mels: ArrayLike, scale: str) -> np.ndarray:
    """Converts mel to frequencies in Hz."""
    mels = np.asarray(mels, "float64")
    if scale == "htk":
        return 700 * (10 ** (mels / 2595) - 1)
    first = _BREAK / _HERTZ_PER_MEL
    high = _BREAK * np.exp((np.maximum(mels, first) - first) / _MELS_PER_NEPER)
    return np.where(mels < first, mels * _HERTZ_PER_MEL, high)


def mel_filters(
    num_mel_bins: int, fft_length: int, sample_rate: int, frequency_range: Sequence[float], scale: str
) -> np.ndarray:
    """Returns triangular filters over the bins of a spectrum, with corners that are equally spaced in mel.

    Args:
        num_mel_bins: int. Number of triangles.
        fft_length: int. The spectrum has `fft_length // 2 + 1` bins from 0 to half the sample rate.
        sample_rate: int, in Hz.
        frequency_range: pair of the lowest corner of the first triangle and the highest of the last, in Hz.
        scale: "slaney", with triangles of equal area, or "htk", with triangles of height 1.

    Returns:
        float64 `(fft_length // 2 + 1, num_mel_bins)`.
    """
    low, high = to_mel(frequency_range, scale)
    corners = from_mel(np.linspace(low, high, num_mel_bins + 2), scale)
    bins = np.arange(fft_length // 2 + 1)[:, None] * (sample_rate / fft_length)
    left, peak, right = corners[:-2], corners[1:-1], corners[2:]
    triangles = np.maximum(0, np.minimum((bins - left) / (peak - left), (right - bins) / (right - peak)))
    return triangles * (2 / (right - left)) if scale == "slaney" else triangles


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
