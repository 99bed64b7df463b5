"""Recordings from files, at the sample rate that a model wants."""

import io
import os
import struct
from typing import NamedTuple

import numpy as np

from keras_transformer.audio.errors import AudioError
from keras_transformer.utils.processor_config import is_count
from keras_transformer.utils.types import Path, Tensor
from keras_transformer.version import install_command

MAX_SAMPLE_RATE = 768_000


class Recording(NamedTuple):
    """Samples, float32 `(n,)` in [-1, 1], and the sample rate in Hz, an int."""

    samples: np.ndarray
    sample_rate: int


def load_audio(file: Path, sample_rate: int | None = None):
    """Reads a recording: WAV, and what else libsndfile reads (FLAC, OGG, MP3, AIFF).

    Several channels are averaged to one.

    Args:
        file: str or path, or a file opened for reading bytes, such as a member of a zip.
        sample_rate: int in Hz that the recording is brought to, or None for its own.

    Returns:
        A `Recording`: `samples` and `sample_rate`.

    Raises:
        AudioError: the file is missing, no recording, cut short or empty, or holds what is no number.
        ImportError: soundfile (or soxr, where the rate changes) is not installed.

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
        raise AudioError(f"{name} is no recording that can be read: {getattr(error, 'error_string', error)}") from None
    samples = samples.mean(axis=1) if samples.shape[1] > 1 else samples[:, 0]
    if not len(samples):
        raise AudioError(f"{name} holds no samples.")
    if not np.isfinite(samples).all():
        raise AudioError(f"{name} holds samples that are no numbers.")
    if sample_rate is None:
        return Recording(samples, rate)
    return Recording(resample(samples, rate, sample_rate), sample_rate)


def resample(samples: Tensor, sample_rate: int, new_sample_rate):
    """Brings samples to another sample rate, with a filter against aliasing (soxr, "HQ").

    Args:
        samples: float `(n,)`.
        sample_rate, new_sample_rate: ints in Hz.

    Returns:
        float32 of about `n · new_sample_rate / sample_rate` samples.

    Raises:
        AudioError: samples of another rank, or a rate that is no int from 1 to 768,000.
        ImportError: soxr is not installed.
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


def stack_recordings(recordings, num_samples: int | None = None):
    """Recordings of different lengths as one array, with silence behind the shorter ones.

    Args:
        recordings: list of `Recording`s of one sample rate, or of float arrays `(n,)`.
        num_samples: int: all are cut or filled to so many. None: to the longest.

    Returns:
        Pair of float32 `(B, samples)` and int32 `(B,)`, the number of samples that each has.

    Raises:
        AudioError: none, of another rank, or of several sample rates.

    Example:

    >>> stack_recordings([[0.5, 0.25, 0.125], [1.0]])[0].tolist()
    [[0.5, 0.25, 0.125], [1.0, 0.0, 0.0]]
    """
    recordings = list(recordings)
    rates = sorted({each.sample_rate for each in recordings if isinstance(each, Recording)})
    if len(rates) > 1:
        raise AudioError(f"Recordings of several sample rates, {rates[0]} and {rates[1]} Hz, make no batch.")
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
    """Refuses a WAV file that ends before its header says so; libsndfile would read what is there."""
    if data[:4] != b"RIFF" or len(data) < 8:
        return
    size = struct.unpack_from("<I", data, 4)[0]
    # A stream that was written without going back does not know its length.
    if size not in (0, 2**32 - 1) and size + 8 > len(data):
        raise AudioError(f"{name} is cut short: it has {len(data)} bytes of {size + 8}.")
