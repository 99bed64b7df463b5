"""Mel scales and filter banks."""

from collections.abc import Sequence

import numpy as np

from keras_transformer.utils.types import ArrayLike

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
