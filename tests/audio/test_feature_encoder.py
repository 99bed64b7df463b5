"""Convolutions over samples: numbers and masks of frames, norms without padding, positions and adapters."""

import keras
import numpy as np
import pytest

from keras_transformer import audio
from keras_transformer.audio.speech.frames import num_frames, receptive_field
from keras_transformer.layers.instance_norm import InstanceNormalization

RNG = np.random.default_rng(0)
KERNELS, STRIDES = (5, 3, 2), (3, 2, 1)
LENGTHS = (61, 40, 11, 3)


def encoder(norm="group", **options):
    layer = audio.FeatureEncoder((3, 4, 5), KERNELS, STRIDES, norm=norm, activation="tanh", **options)
    layer.build((None, None))
    for weight in layer.weights:
        weight.assign(RNG.normal(size=weight.shape))
    return layer


def batch():
    mask = np.arange(LENGTHS[0]) < np.array(LENGTHS)[:, None]
    samples = RNG.normal(size=mask.shape).astype("float32")
    return samples, mask


def test_numbers_of_frames_and_what_a_frame_sees():
    assert receptive_field(KERNELS, STRIDES) == 5 + 2 * 3 + 1 * 6
    kernels, strides = (10, 3, 3, 3, 3, 2, 2), (5, 2, 2, 2, 2, 2, 2)
    assert receptive_field(kernels, strides) == 400
    lengths = np.array([0, 399, 400, 719, 720, 16000])
    assert num_frames(lengths, kernels, strides).tolist() == [0, 0, 1, 1, 2, 49]
    assert [num_frames(int(length), kernels, strides) for length in lengths] == [0, 0, 1, 1, 2, 49]


def test_frames_are_real_if_they_see_real_samples_only():
    samples, mask = batch()
    layer = encoder("layer")
    frame_mask = np.array(audio.FrameMask(KERNELS, STRIDES)(mask))
    before = np.array(layer(samples))
    after = np.array(layer(np.where(mask, samples, 7.0)))
    changed = (before != after).any(axis=-1)
    assert frame_mask.shape == changed.shape == (4, 8)
    np.testing.assert_array_equal(frame_mask, ~changed)
    assert frame_mask.sum(axis=1).tolist() == [8, 4, 0, 0]


def reference(layer, samples):
    """The formula, of one recording, in float64."""
    x = samples[:, None].astype("float64")
    for index, stride in enumerate(STRIDES):
        kernel = np.array(layer._convolutions[index].kernel, "float64")
        starts = range(0, len(x) - len(kernel) + 1, stride)
        x = np.stack([np.einsum("kc,kco->o", x[start : start + len(kernel)], kernel) for start in starts])
        if layer.use_bias:
            x = x + np.array(layer._convolutions[index].bias)
        if index < len(layer._norms):
            norm, axis = layer._norms[index], 0 if layer.norm == "group" else 1
            x = (x - x.mean(axis, keepdims=True)) / np.sqrt(x.var(axis, keepdims=True) + 1e-5)
            x = x * np.array(norm.gamma) + np.array(norm.beta)
        x = np.tanh(x)
    return x


@pytest.mark.parametrize("norm", ["group", "layer"])
@pytest.mark.parametrize("use_bias", [True, False])
def test_a_padded_recording_gives_what_it_gives_alone(norm, use_bias):
    samples, mask = batch()
    layer = encoder(norm, use_bias=use_bias)
    found = np.array(layer(np.where(mask, samples, np.nan if norm == "group" else 0.0), padding_mask=mask))
    for row, length in enumerate(LENGTHS[:2]):
        expected = reference(layer, samples[row, :length])
        np.testing.assert_allclose(found[row, : len(expected)], expected, atol=2e-5)


def test_short_recordings_are_filled_with_silence():
    layer = encoder()
    filled = np.pad(np.ones((1, 4), "float32"), ((0, 0), (0, 13)))
    np.testing.assert_allclose(layer(np.ones((1, 4), "float32")), layer(filled))
    dynamic = keras.Sequential([keras.Input((None,)), layer])
    np.testing.assert_allclose(dynamic(np.ones((1, 4), "float32")), layer(filled), atol=1e-6)
    assert np.array(audio.FrameMask(KERNELS, STRIDES)(np.ones((1, 4), bool))).tolist() == [[False]]


def test_instance_norm_is_group_norm_of_one_channel_per_group():
    x = RNG.normal(2.0, 3.0, size=(2, 9, 4)).astype("float32")
    layer, group = InstanceNormalization(epsilon=0.3), keras.layers.GroupNormalization(groups=-1, epsilon=0.3)
    group.build(x.shape)
    layer.build(x.shape)
    weights = [RNG.normal(size=4), RNG.normal(size=4)]
    layer.set_weights(weights)
    group.set_weights(weights)
    np.testing.assert_allclose(layer(x), group(x), atol=2e-5)


@pytest.mark.parametrize("kernel_size", [1, 4, 5])
def test_position_is_a_grouped_convolution(kernel_size):
    layer = audio.ConvolutionalPosition(kernel_size, num_groups=2, activation="tanh")
    mask = np.arange(7) < np.array([7, 4])[:, None]
    x = RNG.normal(size=(2, 7, 6)).astype("float32")
    layer.build(x.shape)
    found = np.array(layer(np.where(mask[:, :, None], x, np.nan), padding_mask=mask))
    kernels = [np.array(each.kernel) for each in layer._convolutions]
    for row, length in enumerate((7, 4)):
        real = x[row, :length]
        for time in range(length):
            expected = np.zeros(6)
            for offset in range(kernel_size):
                at = time + offset - kernel_size // 2
                if 0 <= at < length:
                    expected += np.concatenate(
                        [real[at, 3 * group : 3 * group + 3] @ kernels[group][offset] for group in (0, 1)]
                    )
            np.testing.assert_allclose(found[row, time], real[time] + np.tanh(expected), atol=1e-5)


@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "kernel_size": 2, "stride": 3, "hidden_dim": 5}], ids=str)
def test_adapted_recording_is_that_alone(options):
    layer = audio.SpeechAdapter(**options)
    lengths = (31, 13, 0)
    mask = np.arange(31) < np.array(lengths)[:, None]
    x = RNG.normal(size=(3, 31, 4)).astype("float32")
    found, frames = (np.array(each) for each in layer(x, padding_mask=mask))
    for row, length in enumerate(lengths[:2]):
        expected = np.array(layer(x[row : row + 1, :length])[0])[0]
        assert frames[row].sum() == len(expected)
        np.testing.assert_allclose(found[row, : len(expected)], expected, atol=1e-6)
    assert not frames[2].any()


def test_normalized_samples():
    layer = audio.SampleNormalization(epsilon=0.5)
    samples, mask = np.array([[1.0, 2.0, 6.0, 9.0]] * 2, "float32"), np.array([[True, True, True, False], [False] * 4])
    expected = (np.array([1.0, 2.0, 6.0]) - 3.0) / np.sqrt(14 / 3 + 0.5)
    found = np.array(layer(samples, padding_mask=mask))
    np.testing.assert_allclose(found, [[*expected, 0.0], [0.0] * 4], atol=1e-6)
    raw = audio.SampleNormalization(normalize=False)(samples, padding_mask=mask)
    np.testing.assert_array_equal(raw, [[1.0, 2.0, 6.0, 0.0], [0.0] * 4])


@pytest.mark.parametrize("kernel_size", [1, 4])
def test_causal_position_in_parts(kernel_size):
    layer = audio.ConvolutionalPosition(kernel_size, num_groups=2, padding="causal")
    x = RNG.normal(size=(2, 7, 6)).astype("float32")
    expected, later = np.array(layer(x)), x.copy()
    later[:, 4:] += 1.0
    np.testing.assert_array_equal(np.array(layer(later))[:, :4], expected[:, :4])
    cache, parts = layer.init_cache(2), []
    for start, end in ((0, 1), (1, 6), (6, 7)):
        part, cache = layer(x[:, start:end], cache=cache)
        parts.append(np.array(part))
    np.testing.assert_allclose(np.concatenate(parts, axis=1), expected, atol=1e-6)
    with pytest.raises(ValueError, match="padding='causal'"):
        audio.ConvolutionalPosition(4).init_cache(1)


LAYERS = {
    "feature_encoder": audio.FeatureEncoder((3, 4), (5, 3), (3, 2), "layer", "relu", True),
    "frame_mask": audio.FrameMask((5, 3), (3, 2)),
    "position": audio.ConvolutionalPosition(5, 3, "relu", "causal"),
    "conformer_convolution": audio.ConformerConvolution(3, "relu", False),
    "normalized_log_mel": audio.NormalizedLogMel(5, 8000, 30, 20, 64, 0.5),
    "subsampling": audio.ConvolutionSubsampling(4, 3, 1, 5, 3),
    "instance_norm": InstanceNormalization(epsilon=0.2),
    "adapter": audio.SpeechAdapter(2, 4, 3, 5),
    "bottleneck": audio.BottleneckAdapter(3),
    "samples": audio.SampleNormalization(8000, False, 0.5),
    "masking": audio.SpanMasking(0.2, 3, 4, 0.3, 5, 6, 7),
}


@pytest.mark.parametrize("name", LAYERS)
def test_configs_are_complete(name):
    config = LAYERS[name].get_config()
    again = type(LAYERS[name]).from_config(config).get_config()
    assert again == config
    defaults = {} if name in ("frame_mask", "subsampling") else type(LAYERS[name])().get_config()
    own = set(config) - set(keras.layers.Layer(name="layer").get_config())
    assert [key for key in own if config[key] == defaults.get(key)] == []


@pytest.mark.parametrize(
    "make",
    [
        lambda: audio.ConvolutionalPosition(padding="valid"),
        lambda: audio.FeatureEncoder((3, 4), (5,), (3, 2)),
        lambda: audio.FeatureEncoder((3,), (5, 3), (3, 2)),
        lambda: audio.FeatureEncoder((3,), (0,), (3,)),
        lambda: audio.FeatureEncoder(norm="batch"),
        lambda: audio.FrameMask((), ()),
        lambda: audio.ConvolutionalPosition(num_groups=0),
        lambda: audio.ConvolutionalPosition(num_groups=4).build((None, None, 6)),
        lambda: audio.SpeechAdapter(num_layers=0),
        lambda: audio.BottleneckAdapter(0),
        lambda: audio.SampleNormalization(sample_rate=0),
        lambda: audio.SampleNormalization(epsilon=0.0),
        lambda: audio.SpanMasking(probability=1.0),
        lambda: audio.SpanMasking(span_length=0),
        lambda: audio.SpanMasking(min_spans=-1),
    ],
)
def test_invalid_arguments(make):
    with pytest.raises(ValueError, match="Received"):
        make()


def test_samples_of_another_rank():
    for layer in (audio.FeatureEncoder(), audio.FrameMask((5,), (3,)), audio.SampleNormalization()):
        with pytest.raises(audio.AudioError, match="samples"):
            layer(np.zeros((1, 500, 1), "float32"))
