"""Parts of FastConformer: subsampling, the convolution module, and its spectrograms."""

import keras
import numpy as np
import pytest

from keras_transformer import audio
from keras_transformer.audio.spectrograms.spectrogram import mel_filters


def test_the_convolution_counts_no_padding():
    """In training: a padded batch has the statistics of its real frames, and moves the averages as torch does."""
    layer, mask = audio.ConformerConvolution(3, use_bias=False), np.array([[1] * 6, [1] * 4 + [0] * 2], bool)
    x = np.random.default_rng(0).normal(size=(2, 6, 4)).astype("float32")
    noisy = np.where(mask[..., None], x, 9.0).astype("float32")
    found = [np.array(layer(each, padding_mask=mask, training=True))[mask] for each in (x, noisy)]
    np.testing.assert_array_equal(*found)
    assert np.abs(found[0] - np.array(layer(x, training=True))[mask]).max() > 1e-3
    mean = next(each for each in layer.weights if "moving_mean" in each.path)
    layer = audio.ConformerConvolution(1, use_bias=False)
    layer.build((None, None, 4))
    gate = keras.ops.sigmoid(x @ layer.weights[0].numpy()[:, 4:])
    inside = np.array((x @ layer.weights[0].numpy()[:, :4]) * gate) * layer.weights[1].numpy()[0, :, 0]
    layer(x, padding_mask=mask, training=True)
    mean = next(each for each in layer.weights if "moving_mean" in each.path)
    np.testing.assert_allclose(mean.numpy(), 0.1 * inside[mask].mean(axis=0), atol=1e-6)


@pytest.mark.parametrize("num_layers, kernel_size, stride", [(3, 3, 2), (2, 5, 3), (1, 1, 1)])
def test_rows_of_a_subsampled_batch_are_those_alone(num_layers, kernel_size, stride):
    keras.utils.set_random_seed(0)
    layer = audio.ConvolutionSubsampling(5, 4, num_layers, kernel_size, stride)
    x = np.random.default_rng(0).normal(size=(3, 23, 18)).astype("float32")
    lengths = np.array([23, 16, 1])
    frames, mask = layer(x, padding_mask=np.arange(23) < lengths[:, None])
    specs = layer.compute_output_spec(keras.KerasTensor((3, 23, 18)))
    assert [tuple(each.shape) for each in (frames, mask)] == [each.shape for each in specs]
    for row, length in enumerate(lengths):
        alone, real = layer(x[row : row + 1, :length])
        assert np.array(real).all()
        assert np.sum(mask[row]) == alone.shape[1]
        np.testing.assert_allclose(frames[row, : alone.shape[1]], alone[0], atol=1e-6)


def test_a_spectrogram_by_hand():
    """One frame after another, with numpy's transform."""
    layer = audio.NormalizedLogMel(5, 16_000, frame_length=30, hop_length=20, fft_length=64, preemphasis=0.5)
    samples = np.random.default_rng(0).normal(size=100)
    emphasized = np.append(samples[0], samples[1:] - 0.5 * samples[:-1])
    padded = np.pad(emphasized, 15)
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(30) / 29)
    power = [np.abs(np.fft.rfft(padded[20 * t : 20 * t + 30] * window, 64)) ** 2 for t in range(5)]
    filters = mel_filters(5, 64, 16_000, (0.0, 8000.0), "slaney")
    logs = np.log(np.array(power) @ filters + 2.0**-24)
    expected = (logs - logs.mean(axis=0)) / (logs.std(axis=0, ddof=1) + 1e-5)
    found, mask = layer(samples[None].astype("float32"))
    np.testing.assert_allclose(found[0, :5], expected, atol=2e-5)
    assert np.array(mask).tolist() == [[True] * 5 + [False]]
    assert not np.array(found[0, 5]).any()


def test_spectrograms_of_almost_nothing_are_finite():
    layer = audio.NormalizedLogMel(5, frame_length=30, hop_length=20, fft_length=64)
    for samples in (0, 1, 25):
        features, mask = layer(np.zeros((2, samples), "float32"))
        assert np.isfinite(np.array(features)).all()
        assert np.sum(mask) == 2 * (samples // 20)


@pytest.mark.parametrize(
    "make",
    [
        lambda: audio.ConformerConvolution(4),
        lambda: audio.ConvolutionSubsampling(4, kernel_size=2),
        lambda: audio.ConvolutionSubsampling(4, stride=0),
        lambda: audio.NormalizedLogMel(fft_length=511),
        lambda: audio.NormalizedLogMel(frame_length=600),
        lambda: audio.NormalizedLogMel(preemphasis="0.9"),
        lambda: audio.ConvolutionSubsampling(4)(np.zeros((1, 9))),
        lambda: audio.NormalizedLogMel()(np.zeros((1, 9, 2))),
    ],
)
def test_invalid_arguments(make):
    with pytest.raises(ValueError, match="Received"):
        make()
