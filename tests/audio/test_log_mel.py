"""LogMel against transformers' WhisperFeatureExtractor (fixtures by make_audio.py) and against its formula in float64."""

import json
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_transformer import load_model
from keras_transformer.audio import AudioError, FeatureExtractorError, LogMel
from keras_transformer.audio.spectrograms.spectrogram import from_mel, mel_filters, to_mel

DATA = Path(__file__).parents[1] / "data" / "processors"
FILE = np.load(DATA / "audio.npz")
NAMES = ("mixed", "loud", "clicks")


def recording(name):
    return FILE[name].astype("float32") / 32768


def formula(samples, layer):
    """The spectrogram by numpy's FFT in float64."""
    half = layer.frame_length // 2
    samples = np.pad(samples.astype("float64"), half, mode="reflect") if layer.padding else samples.astype("float64")
    times = 2 * np.pi * np.arange(layer.frame_length) / layer.frame_length
    window = {"hann": 0.5 - 0.5 * np.cos(times), "hamming": 0.54 - 0.46 * np.cos(times)}.get(layer.window, 1.0)
    starts = range(0, len(samples) - layer.frame_length + 1, layer.hop_length)
    frames = np.stack([samples[start : start + layer.frame_length] * window for start in starts])
    power = np.abs(np.fft.rfft(frames, layer.fft_length)) ** 2
    low, high = layer.frequency_range
    edges = (low, layer.sample_rate / 2 if high is None else high)
    filters = mel_filters(layer.num_mel_bins, layer.fft_length, layer.sample_rate, edges, layer.mel_scale)
    mel = np.maximum(power @ filters, 1e-10)
    return {"log10": np.log10, "natural": np.log, "decibel": lambda x: 10 * np.log10(x), None: lambda x: x}[layer.log](
        mel
    )


@pytest.mark.parametrize("kind, name", [("whisper", name) for name in NAMES] + [("whisper_128", "mixed")])
def test_equals_transformers(kind, name):
    bins = {"whisper": 80, "whisper_128": 128}[kind]
    expected = FILE[f"{kind}/{name}"]
    found = LogMel.whisper(bins, num_samples=8000)(recording(name)[None])
    np.testing.assert_allclose(found[0], expected, atol=1e-4)


def test_reads_files_of_transformers():
    for kind, bins in (("whisper", 80), ("whisper_128", 128), ("nested_audio", 80)):
        layer = LogMel.from_huggingface(DATA / kind, name="front_end")
        expected = LogMel.whisper(bins, name="front_end").get_config()
        assert layer.get_config() == {**expected, "frequency_range": (0.0, 8000.0)}
    # Thirty seconds, most of them silent: the front agrees, but for the frames that see the cut of the fixture.
    layer = LogMel.from_huggingface(DATA / "whisper")
    found = np.asarray(layer(recording("mixed")[None]))[0]
    assert found.shape == (3000, 80)
    np.testing.assert_allclose(found[:48], FILE["whisper/mixed"][:48], atol=1e-4)
    np.testing.assert_array_equal(found[60:], found.min())


@pytest.mark.parametrize(
    "options",
    [
        {"log": "natural"},
        {"sample_rate": 8000, "frame_length": 200, "hop_length": 80, "fft_length": 256, "log": "decibel"},
        {"mel_scale": "htk", "frequency_range": (50.0, 7000.0), "window": "hamming", "num_mel_bins": 23},
        {"padding": None, "frame_length": 401, "hop_length": 133, "window": "rectangular", "num_mel_bins": 20},
        {"padding": None, "frame_length": 160, "hop_length": 160, "num_mel_bins": 11},
        {"frame_length": 300, "hop_length": 400, "num_mel_bins": 11},
        {"frame_length": 121, "hop_length": 60, "num_mel_bins": 7},
    ],
    ids=str,
)
def test_is_the_formula(options):
    layer = LogMel(**options)
    samples = recording("mixed")
    for length in (len(samples), 2400, 2401, 2399):
        expected = formula(samples[:length], layer)
        found = np.asarray(layer(samples[None, :length]))[0]
        # Of the frames that padding makes, the last is left out.
        expected = expected[: length // layer.hop_length] if layer.padding else expected
        assert found.shape == expected.shape
        assert layer.num_frames(length) == len(expected)
        np.testing.assert_allclose(found, expected, atol=1e-3 if layer.log == "decibel" else 1e-4)


def test_powers_alone():
    layer = LogMel(8, 1000, 20, 10, log=None, padding=None, window="rectangular", mel_scale="htk")
    tone = np.cos(2 * np.pi * 100 * np.arange(40) / 1000)
    found = np.asarray(layer(tone[None].astype("float32")))[0]
    # Two periods in each frame: the second bin holds (20 / 2) squared.
    power = np.zeros(11)
    power[2] = 100
    filters = mel_filters(8, 20, 1000, (0, 500), "htk")
    np.testing.assert_allclose(found, np.maximum(np.tile(power @ filters, (3, 1)), 1e-10), atol=1e-4)


def test_mel_scales():
    # Slaney: linear to 1,000 Hz, then 27 mel for each factor of 6.4. HTK: 1,000 Hz are 1,000 mel.
    np.testing.assert_allclose(to_mel([0, 200 / 3, 1000, 6400], "slaney"), [0, 1, 15, 42], atol=1e-12)
    np.testing.assert_allclose(to_mel([0, 1000, 700], "htk"), [0, 999.9855, 2595 * np.log10(2)], atol=1e-4)
    hertz = np.linspace(0, 8000, 33)
    for scale in ("slaney", "htk"):
        np.testing.assert_allclose(from_mel(to_mel(hertz, scale), scale), hertz, atol=1e-9)
    # Corners at 0, 250, 500, 750 Hz: linear there; areas of 1, heights of 1.
    expected = [[0, 0], [0.5, 0], [1, 0], [0.5, 0.5], [0, 1], [0, 0.5], [0, 0], [0, 0], [0, 0]]
    np.testing.assert_allclose(mel_filters(2, 16, 2000, (0, 750), "slaney") * 250, expected, atol=1e-12)
    assert mel_filters(3, 64, 2000, (0, 1000), "htk").max() <= 1


def test_whisper_normalization_is_of_each_recording():
    layer = LogMel.whisper(40, num_samples=None)
    loud, quiet = recording("mixed"), 0.001 * recording("mixed")
    alone = [np.asarray(layer(each[None]))[0] for each in (loud, quiet)]
    np.testing.assert_allclose(layer(np.stack([loud, quiet])), np.stack(alone), atol=1e-6)
    plain = np.asarray(LogMel(40)(loud[None]))[0]
    np.testing.assert_allclose(alone[0], (np.maximum(plain, plain.max() - 8) + 4) / 4, atol=1e-5)
    assert alone[1].max() < alone[0].max() - 1


def test_cut_and_filled():
    layer = LogMel(20, num_samples=3200)
    samples = recording("loud")
    np.testing.assert_allclose(layer(samples[None]), LogMel(20)(samples[None, :3200]), atol=1e-6)
    filled = np.concatenate([samples[:1000], np.zeros(2200, "float32")])
    np.testing.assert_allclose(layer(samples[None, :1000]), LogMel(20)(filled[None]), atol=1e-6)
    assert [layer.num_frames(count) for count in (1000, 3200, 9000)] == [6, 20, 20]
    assert layer.num_frames(np.array([1000, 9000])).tolist() == [6, 20]
    # Too few for a frame: filled with silence.
    for padding, least in (("reflect", 201), (None, 400)):
        layer = LogMel(20, padding=padding)
        short = np.concatenate([samples[:90], np.zeros(least - 90, "float32")])
        np.testing.assert_allclose(layer(samples[None, :90]), layer(short[None]), atol=1e-6)
        assert layer(np.zeros((1, 0), "float32")).shape == (1, 1, 20)
        assert layer.num_frames(0) == 1


def test_in_a_model_that_is_saved(tmp_path):
    inputs = keras.Input((None,), name="samples")
    layer = LogMel(12, 8000, 100, 40, 128, "hamming", (20.0, 3000.0), "htk", "decibel", None, 900, name="mel")
    model = keras.Model(inputs, keras.layers.GlobalAveragePooling1D()(layer(inputs)))
    assert model.get_layer("mel").output.shape == (None, 21, 12)
    samples = np.stack([recording("mixed")[:1000], recording("loud")[:1000]])
    expected = model.predict(samples, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(loaded.predict(samples, verbose=0), expected, atol=1e-5)
    config, defaults = layer.get_config(), {**LogMel().get_config(), "normalization": "whisper"}
    assert loaded.get_layer("mel").get_config() == config
    assert all(config[name] != defaults[name] for name in defaults if name not in ("trainable", "dtype"))
    assert not layer.weights
    # A length that is not known when the graph is made.
    dynamic = keras.Sequential([keras.Input((None,)), LogMel(9)])
    assert dynamic.output_shape == (None, None, 9)
    for length in (90, 1234):
        np.testing.assert_allclose(
            dynamic.predict(samples[:, :length], verbose=0), LogMel(9)(samples[:, :length]), atol=1e-5
        )


def test_stays_precise_in_mixed_precision():
    samples = recording("mixed")[None]
    layer = LogMel.whisper(num_samples=8000, dtype="mixed_bfloat16")
    found = keras.ops.convert_to_numpy(keras.ops.cast(layer(samples), "float32"))
    assert keras.backend.standardize_dtype(layer(samples).dtype) == "bfloat16"
    # Rounded once, at the end: 8 bits of values up to 2.
    np.testing.assert_allclose(found[0], FILE["whisper/mixed"], atol=2**-8)


@pytest.mark.parametrize(
    "arguments, match",
    [
        ({"num_mel_bins": 0}, "num_mel_bins must be an int of at least 1"),
        ({"hop_length": 1.5}, "hop_length must be"),
        ({"num_samples": -1}, "num_samples must be"),
        ({"window": "kaiser"}, r"window must be one of \('hann', 'hamming', 'rectangular'\)"),
        ({"mel_scale": "bark"}, "mel_scale must be one of"),
        ({"log": "log2"}, "log must be one of"),
        ({"padding": "same"}, "padding must be one of"),
        ({"normalization": "mean"}, "normalization must be one of"),
        ({"fft_length": 256}, "fft_length 256 is shorter than frame_length 400"),
        ({"normalization": "whisper", "log": "natural"}, "requires log='log10'"),
        ({"frequency_range": (0, 8001)}, "from 0 to half the sample rate"),
        ({"frequency_range": (300, 200)}, "must be increasing"),
        ({"frequency_range": ("a", 200)}, "pair of numbers"),
    ],
)
def test_arguments_out_of_range(arguments, match):
    with pytest.raises(ValueError, match=match):
        LogMel(**arguments)


def test_unfit_samples():
    for shape in ((5,), (1, 400, 1)):
        with pytest.raises(AudioError, match=r"takes samples of shape \(B, samples\)"):
            LogMel()(np.zeros(shape, "float32"))


@pytest.mark.parametrize(
    "change, match",
    [
        (
            {"feature_extractor_type": "ASTFeatureExtractor"},
            "type 'ASTFeatureExtractor'. Supported: WhisperFeatureExtractor",
        ),
        ({"feature_size": 10**9}, "feature_size must be an int from 1 to 2048"),
        ({"hop_length": 0}, "hop_length must be"),
        ({"chunk_length": "30"}, "chunk_length must be"),
        ({"dither": 0.1}, "dither other than 0"),
        ({"padding_value": 1.0}, "padding_value other than 0"),
    ],
)
def test_unfit_files(change, match, tmp_path):
    config = json.loads((DATA / "whisper" / "preprocessor_config.json").read_text())
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({**config, **change}))
    with pytest.raises(FeatureExtractorError, match=match):
        LogMel.from_huggingface(tmp_path)
