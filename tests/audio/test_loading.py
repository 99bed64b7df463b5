"""Recordings from files and resampling."""

import io
import sys
import wave

import numpy as np
import pytest

from keras_transformer.audio import AudioError, Recording, load_audio, resample, stack_recordings

pytest.importorskip("soundfile")
pytest.importorskip("soxr")


def write(path, samples, rate=8000, width=2, channels=1):
    """Little-endian PCM of `width` bytes from ints of the same scale."""
    data = np.asarray(samples, "<i4").reshape(-1, 1).view("uint8").reshape(-1, 4)[:, :width].tobytes()
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(data)


def tone(pitch, rate, seconds=0.5):
    return np.sin(2 * np.pi * pitch * np.arange(int(rate * seconds)) / rate)


@pytest.mark.parametrize("width", [2, 3, 4])
def test_reads_wav(width, tmp_path):
    scale = 2 ** (8 * width - 1)
    write(tmp_path / "a.wav", [0, scale // 2, -scale, scale - 1], width=width)
    samples, rate = load_audio(tmp_path / "a.wav")
    assert rate == 8000
    assert samples.dtype == np.float32
    np.testing.assert_allclose(samples, [0, 0.5, -1, 1 - 1 / scale], atol=1e-7)
    with open(tmp_path / "a.wav", "rb") as file:
        np.testing.assert_array_equal(load_audio(file).samples, samples)
    np.testing.assert_array_equal(load_audio(io.BytesIO((tmp_path / "a.wav").read_bytes())).samples, samples)


def test_channels_are_averaged(tmp_path):
    write(tmp_path / "a.wav", [8192, 16384, -8192, 0], channels=2)
    np.testing.assert_allclose(load_audio(str(tmp_path / "a.wav")).samples, [0.375, -0.125], atol=1e-7)


@pytest.mark.parametrize("rate, new_rate", [(8000, 16000), (44100, 16000), (48000, 16000), (16000, 11025)])
def test_resampled_tone_is_the_tone(rate, new_rate, tmp_path):
    write(tmp_path / "a.wav", np.round(tone(1000, rate) * 30000), rate)
    samples, found = load_audio(tmp_path / "a.wav", sample_rate=new_rate)
    assert found == new_rate
    expected = tone(1000, new_rate) * 30000 / 32768
    assert abs(len(samples) - len(expected)) <= 1
    middle = slice(len(expected) // 4, 3 * len(expected) // 4)
    np.testing.assert_allclose(samples[middle], expected[middle], atol=1e-3)


def test_what_the_new_rate_cannot_hold_is_filtered_out():
    high = resample(tone(7000, 16000), 16000, 8000)
    assert np.abs(high[500:-500]).max() < 1e-3
    assert np.abs(resample(tone(3000, 16000), 16000, 8000)).max() > 0.9
    np.testing.assert_array_equal(resample([0.5, 1.0], 8000, 8000), [0.5, 1.0])


def test_stacked():
    batch, lengths = stack_recordings([Recording(np.ones(3, "float32"), 8000), [0.5]])
    assert batch.tolist() == [[1, 1, 1], [0.5, 0, 0]]
    assert lengths.tolist() == [3, 1]
    batch, lengths = stack_recordings([[1, 2, 3], [0.5]], num_samples=2)
    assert batch.tolist() == [[1, 2], [0.5, 0]]
    assert lengths.tolist() == [2, 1]
    with pytest.raises(AudioError, match="several sample rates, 8000 and 16000 Hz"):
        stack_recordings([Recording(np.ones(3), 16000), Recording(np.ones(3), 8000)])
    with pytest.raises(AudioError, match=r"Recording 1 must be of shape \(n,\)"):
        stack_recordings([[1.0], [[1.0]]])
    with pytest.raises(AudioError, match="No recording"):
        stack_recordings([])


def test_unfit_files(tmp_path):
    write(tmp_path / "good.wav", np.arange(100))
    write(tmp_path / "empty.wav", [])
    data = (tmp_path / "good.wav").read_bytes()
    (tmp_path / "cut.wav").write_bytes(data[:-7])
    (tmp_path / "text.wav").write_text("no recording")
    (tmp_path / "none.wav").write_bytes(b"")
    import soundfile

    soundfile.write(tmp_path / "nan.wav", np.array([0.0, np.nan]), 8000, subtype="FLOAT")
    for file, match in (
        (tmp_path / "nowhere.wav", "nowhere.wav' cannot be read: No such file"),
        (tmp_path, "cannot be read: Is a directory"),
        (tmp_path / "text.wav", "text.wav' is not a readable recording"),
        (tmp_path / "none.wav", "none.wav' is not a readable recording"),
        (tmp_path / "cut.wav", "cut.wav' is truncated: it has 237 bytes of 244"),
        (tmp_path / "empty.wav", "empty.wav' has no samples"),
        (tmp_path / "nan.wav", "nan.wav' has samples that are not finite"),
        (5, "Expected a path or an opened file"),
    ):
        with pytest.raises(AudioError, match=match):
            load_audio(file)
    for rate in (0, -5, 10**9, 8000.5):
        with pytest.raises(AudioError, match="A sample rate must be an int from 1 to 768000"):
            load_audio(tmp_path / "good.wav", sample_rate=rate)
    with pytest.raises(AudioError, match="of one channel"):
        resample(np.zeros((2, 2)), 8000, 16000)


def test_without_the_libraries(monkeypatch, tmp_path):
    write(tmp_path / "a.wav", [1, 2, 3])
    monkeypatch.setitem(sys.modules, "soxr", None)
    assert len(load_audio(tmp_path / "a.wav").samples) == 3
    with pytest.raises(ImportError, match=r"needs soxr: pip install '.*\[audio\]'"):
        load_audio(tmp_path / "a.wav", sample_rate=16000)
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(ImportError, match=r"needs soundfile: pip install '.*\[audio\]'"):
        load_audio(tmp_path / "a.wav")
