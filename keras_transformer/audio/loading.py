"""Loading and resampling of recordings."""

from __future__ import annotations

import io
import os
import struct
from collections.abc import Iterable
from typing import IO, NamedTuple

import numpy as np

from keras_transformer.audio.errors import AudioError
from keras_transformer.utils.processor_config import is_count
from keras_transformer.utils.types import ArrayLike, Path
from keras_transformer.version import install_command

MAX_SAMPLE_RATE = 768_000


class Recording(NamedTuple):
    """A recording: samples, float32 `(n,)` in [-1, 1], and the sample rate in Hz, an int.

    Example:

    >>> recording = Recording(np.zeros(8000, "float32"), sample_rate=16000)
    >>> len(recording.samples) / recording.sample_rate  # Seconds.
    0.5
    """

    samples: np.ndarray
    sample_rate: int


def load_audio(file: Path | IO[bytes], sample_rate: int | None = None) -> Recording:
    """Loads a recording: WAV, and other formats of libsndfile (FLAC, OGG, MP3, AIFF). Channels are averaged.

    Args:
        file: str or path, or a binary file object, such as a member of a zip.
        sample_rate: int in Hz to resample to, or None for that of the file.

    Returns:
        A `Recording`: `samples` and `sample_rate`.

    Raises:
        AudioError: the file is missing, not a recording, truncated or empty, or has samples that are not finite.
        ImportError: soundfile is not installed, or soxr if the recording is resampled.

    Example:

    >>> recording = load_audio("speech.wav", sample_rate=16_000)  # doctest: +SKIP
    >>> spectrogram = LogMel.whisper()(recording.samples[None])  # doctest: +SKIP
    """
    library = _library("soundfile")
    name, data = _read(file)
    _check_whole(name, data)
    try:
        samples, rate = library.read(io.BytesIO(data), dtype="float32", always_2d=True)
    except (library.LibsndfileError, RuntimeError, TypeError) as error:
        raise AudioError(f"{name} is not a readable recording: {getattr(error, 'error_string', error)}") from None
    samples = samples.mean(axis=1) if samples.shape[1] > 1 else samples[:, 0]
    if not len(samples):
        raise AudioError(f"{name} has no samples.")
    if not np.isfinite(samples).all():
        raise AudioError(f"{name} has samples that are not finite.")
    if sample_rate is None:
        return Recording(samples, rate)
    return Recording(resample(samples, rate, sample_rate), sample_rate)


def resample(samples: ArrayLike, sample_rate: int, new_sample_rate: int) -> np.ndarray:
    """Resamples a recording, with an anti-aliasing filter (soxr, "HQ").

    Args:
        samples: float `(n,)`.
        sample_rate, new_sample_rate: ints in Hz.

    Returns:
        float32 of about `n · new_sample_rate / sample_rate` samples.

    Raises:
        AudioError: samples of another rank, or a rate that is not an int from 1 to 768,000.
        ImportError: soxr is not installed.

    Example:

    >>> resample([0.0] * 441, 44_100, 16_000).shape  # doctest: +SKIP
    (160,)
    """
    samples = np.asarray(samples, "float32")
    if samples.ndim != 1:
        raise AudioError(f"Samples must be of one channel, of shape (n,). Received shape: {samples.shape}")
    for rate in (sample_rate, new_sample_rate):
        if not is_count(rate) or rate > MAX_SAMPLE_RATE:
            raise AudioError(f"A sample rate must be an int from 1 to {MAX_SAMPLE_RATE}. Received: {rate!r}")
    if sample_rate == new_sample_rate:
        return samples
    return np.asarray(_library("soxr").resample(samples, sample_rate, new_sample_rate, quality="HQ"), "float32")


def stack_recordings(
    recordings: Iterable[Recording | ArrayLike], num_samples: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Stacks recordings of different lengths in one array, padded with silence.

    Args:
        recordings: list of `Recording`s of one sample rate, or of float arrays `(n,)`.
        num_samples: int: the length to truncate or pad to. None: that of the longest.

    Returns:
        Pair of float32 `(B, samples)` and int32 `(B,)`, the number of samples of each recording.

    Raises:
        AudioError: no recordings, a recording of another rank, or several sample rates.

    Example:

    >>> stack_recordings([[0.5, 0.25, 0.125], [1.0]])[0].tolist()
    [[0.5, 0.25, 0.125], [1.0, 0.0, 0.0]]
    """
    recordings = list(recordings)
    rates = sorted({each.sample_rate for each in recordings if isinstance(each, Recording)})
    if len(rates) > 1:
        raise AudioError(f"Recordings of several sample rates, {rates[0]} and {rates[1]} Hz, cannot be stacked.")
    rows = [np.asarray(each.samples if isinstance(each, Recording) else each, "float32") for each in recordings]
    for number, row in enumerate(rows):
        if row.ndim != 1:
            raise AudioError(f"Recording {number} must be of shape (n,). Received shape: {row.shape}")
    if not rows:
        raise AudioError("No recording was given.")
    length = max(map(len, rows)) if num_samples is None else num_samples
    batch = np.zeros((len(rows), length), "float32")
    for number, row in enumerate(rows):
        batch[number, : len(row)] = row[:length]
    return batch, np.array([min(len(row), length) for row in rows], "int32")


def _library(name):
    try:
        return __import__(name)
    except ImportError as error:
        raise ImportError(f"Loading recordings needs {name}: {install_command('audio')}") from error


def _read(file):
    if hasattr(file, "read"):
        return f"'{getattr(file, 'name', 'The file')}'", file.read()
    if not isinstance(file, (str, os.PathLike)):
        raise AudioError(f"Expected a path or an opened file. Received: {type(file).__name__}")
    name = f"'{os.fspath(file)}'"
    try:
        with open(file, "rb") as opened:
            return name, opened.read()
    except OSError as error:
        raise AudioError(f"{name} cannot be read: {error.strerror}.") from None


def _check_whole(name, data):
    """Refuses a WAV file that is shorter than its header specifies; libsndfile would read the rest."""
    if data[:4] != b"RIFF" or len(data) < 8:
        return
    size = struct.unpack_from("<I", data, 4)[0]
    # Streaming writers leave the length open.
    if size not in (0, 2**32 - 1) and size + 8 > len(data):
        raise AudioError(f"{name} is truncated: it has {len(data)} bytes of {size + 8}.")
