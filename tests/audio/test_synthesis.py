"""Layers of speech synthesis: splines, durations, frames, padding, and what is refused."""

import numpy as np
import pytest
from keras import ops

from keras_transformer import audio, models
from keras_transformer.audio.synthesis.spline import inverse_spline
from keras_transformer.positions import ShawRelative


def softplus(x):
    return np.log1p(np.exp(x))


def spline(x, widths, heights, slopes, bound):
    """The spline itself, of one number, as the paper defines it."""
    sizes = []
    for logits in (widths, heights):
        shares = np.exp(logits) / np.exp(logits).sum()
        sizes.append(2 * bound * (1e-3 + (1 - 1e-3 * len(logits)) * shares))
    slopes = np.concatenate([[1.0], 1e-3 + softplus(slopes), [1.0]])
    left, low = (np.cumsum([-bound, *size]) for size in sizes)
    k = int(np.searchsorted(left[1:-1], x, side="right"))
    width, height = (size[k] for size in sizes)
    mean, place = height / width, (x - left[k]) / width
    above = height * (mean * place**2 + slopes[k] * place * (1 - place))
    return low[k] + above / (mean + (slopes[k] + slopes[k + 1] - 2 * mean) * place * (1 - place))


def test_spline_is_inverted():
    rng = np.random.default_rng(0)
    count, bound = 40, 1.5
    arguments = np.linspace(-1.499, 1.499, count)
    widths, heights, slopes = (rng.normal(size=(count, size)) for size in (5, 5, 4))
    values = np.array([spline(*each, bound) for each in zip(arguments, widths, heights, slopes, strict=True)])
    assert np.abs(values - arguments).max() > 0.1
    found = inverse_spline(*(each.astype("float32") for each in (values, widths, heights, slopes)), bound)
    np.testing.assert_allclose(found, arguments, atol=2e-5)
    # Outside of the interval it is the identity.
    outside, logits = np.array([-7.0, 1.6], "float32"), np.zeros((2, 5), "float32")
    np.testing.assert_array_equal(inverse_spline(outside, logits, logits, logits[:, 1:], bound), outside)


def test_frame_counts_are_rounded_up_and_limited():
    logs = np.log(np.array([[1.0, 1.001, 7.9, 3.0]], "float32"))
    mask = np.array([[True, True, True, False]])
    counts = audio.FrameCounts()(logs, np.array([1.0], "float32"), padding_mask=mask)
    assert ops.convert_to_numpy(counts).tolist() == [[1, 2, 8, 0]]
    slow = audio.FrameCounts()(np.array([[0.0, 99.0, -50.0]], "float32"), np.array([0.4], "float32"))
    assert ops.convert_to_numpy(slow).tolist() == [[3, 4096, 1]]


def test_frames_are_those_of_their_tokens():
    tokens = np.array([[[1, 0.5], [2, 0], [3, 9]], [[4, 1], [5, 0], [6, 0]]], "float32")
    counts = np.array([[2, 0, 1], [0, 4, 3]], "int32")
    noise = np.random.default_rng(0).normal(size=(2, 5, 1)).astype("float32")
    frames, mask = audio.FrameExpansion(0.5)(tokens, counts, noise)
    scale = 0.5 * noise[..., 0]
    first = [1 + scale[0, 0] * np.exp(0.5), 1 + scale[0, 1] * np.exp(0.5), 3 + scale[0, 2] * np.exp(9), 0, 0]
    second = [*(5 + scale[1, :4]), 6 + scale[1, 4]]  # Two frames are cut off.
    np.testing.assert_allclose(frames[..., 0], [first, second], rtol=1e-6)
    assert ops.convert_to_numpy(mask).tolist() == [[True] * 3 + [False] * 2, [True] * 5]


@pytest.mark.parametrize(
    "layer",
    [
        audio.HiFiGAN(8, (3, 2), (5, 4), (3, 5), ((1, 2), (3,))),
        audio.WaveNet(3, 3, dilation_rate=2),
        audio.CouplingFlow(8, audio.WaveNet(2, 3)),
        audio.DepthSeparableConvolutions(2),
        audio.DurationPredictor(6),
    ],
    ids=lambda layer: layer.name,
)
def test_rows_are_those_alone(layer):
    x = np.random.default_rng(0).normal(size=(1, 9, 6)).astype("float32")
    mask = np.arange(9)[None] < 5
    if isinstance(layer, audio.WaveNet):  # It takes frames whose padding is 0.
        x = np.where(mask[..., None], x, 0).astype("float32")
    layer(x)
    for weight in layer.weights:
        weight.assign(np.random.default_rng(len(weight.path)).normal(size=weight.shape) * 0.5)
    alone = ops.convert_to_numpy(layer(x[:, :5]))
    among = ops.convert_to_numpy(layer(x, padding_mask=mask))[:, : alone.shape[1]]
    without = ops.convert_to_numpy(layer(x))[:, : alone.shape[1]]
    assert np.abs(without - alone).max() > 1e-4
    np.testing.assert_allclose(among, alone, atol=2e-6 * max(1, np.abs(alone).max()))


def test_far_keys_have_no_relative_vector():
    position = ShawRelative(max_distance=1, clips=False, initializer="ones")
    position.build((1, 4, 1, 2), (1, 4, 1, 3))
    query, places = np.ones((1, 4, 1, 2), "float32"), np.arange(4)
    near = (np.abs(places[:, None] - places) <= 1).astype("float32")
    np.testing.assert_allclose(position.bias(query, places, places)[0, 0], near * np.sqrt(2), rtol=1e-6)
    weights = np.random.default_rng(0).uniform(size=(1, 1, 4, 4)).astype("float32")
    expected = np.repeat((weights[0, 0] * near).sum(axis=1)[:, None], 3, axis=1)
    np.testing.assert_allclose(position.values(weights, places, places)[0, :, 0], expected, rtol=1e-6)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: audio.HiFiGAN(8, (3, 2), (6, 4)), "more by an even number. Received: 6 for 3"),
        (lambda: audio.HiFiGAN(8, (4,), (2,)), "Received: 2 for 4"),
        (lambda: audio.HiFiGAN(8, (4,), (8, 4)), "kernel_sizes must have one item"),
        (lambda: audio.HiFiGAN(8, (4,), (8,), (3, 5), ((1,),)), "block_dilation_rates must have one item"),
        (lambda: audio.HiFiGAN(8, (4,), (8,), (4,), ((1,),)), "block_kernel_sizes must be odd"),
        (lambda: audio.HiFiGAN(3, (2, 2), (4, 4)), "hidden_dim must be at least 4"),
        (lambda: audio.WaveNet(kernel_size=4), "kernel_size must be odd"),
        (lambda: audio.WaveNet(num_layers=0), "num_layers must be an int of at least 1"),
        (lambda: audio.CouplingFlow().build((None, None, 5)), "even number of channels. Received: 5"),
        (lambda: audio.ConvolutionFlow(audio.DepthSeparableConvolutions(), num_bins=1), "num_bins must be at least 2"),
        (lambda: audio.StochasticDurationPredictor(num_flows=-1), "neither it nor noise_scale negative"),
        (lambda: audio.FrameExpansion(-0.1), "noise_scale must not be negative"),
        (lambda: models.VITS(models.Size(1, 8, 3, 8)), "num_heads must divide hidden_dim"),
    ],
)
def test_refusals(make, message):
    with pytest.raises(ValueError, match=message):
        make()
