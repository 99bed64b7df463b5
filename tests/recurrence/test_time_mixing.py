"""Time mixing and channel mixing against the reference, and the formula at its extremes."""

import numpy as np
import pytest

from keras_transformer.recurrence import ChannelMixing, TimeMixing
from keras_transformer.recurrence.rwkv.wkv import wkv

BLOCK = "params/blocks.0."


def time_mixing(golden, **options):
    arrays = golden("rwkv4")
    layer = TimeMixing(**options)
    layer.build(arrays["inputs/x"].shape)
    vectors = ["time_decay", "time_first", "time_mix_key", "time_mix_value", "time_mix_receptance"]
    kernels = ["receptance", "key", "value", "output"]
    weights = [arrays[f"{BLOCK}attention.{name}"].ravel() for name in vectors]
    layer.set_weights(weights + [arrays[f"{BLOCK}attention.{name}.weight"].T for name in kernels])
    return layer, arrays


@pytest.mark.parametrize("chunk_size", [1, 5, 64])
def test_outputs_of_the_reference(golden, read, chunk_size):
    layer, arrays = time_mixing(golden, chunk_size=chunk_size)
    x, expected = arrays["inputs/x"], arrays["outputs/time_mixing_block0"]
    np.testing.assert_allclose(layer(x), expected, atol=1e-6)
    for sizes in ([12], [7, 5], [1] * 12):
        np.testing.assert_allclose(read(layer, x, sizes)[0], expected, atol=1e-6)


def test_channel_mixing_of_the_reference(golden, read):
    arrays = golden("rwkv4")
    layer = ChannelMixing(32)
    x = arrays["inputs/x"]
    layer.build(x.shape)
    mixes = [arrays[f"{BLOCK}feed_forward.time_mix_{name}"].ravel() for name in ("key", "receptance")]
    kernels = [arrays[f"{BLOCK}feed_forward.{name}.weight"].T for name in ("key", "receptance", "value")]
    layer.set_weights(mixes + kernels)
    np.testing.assert_allclose(layer(x), arrays["outputs/channel_mixing_block0"], atol=3e-6)
    np.testing.assert_allclose(read(layer, x, [4, 1, 7])[0], arrays["outputs/channel_mixing_block0"], atol=3e-6)


def dense(key, value, decay, bonus, mask, past=None):
    """Each weighted mean from all logarithms of weights at once, in float64."""
    means = np.zeros(value.shape)
    places = np.cumsum(mask, axis=1) - mask
    for row, t in zip(*np.nonzero(mask), strict=True):
        earlier = [s for s in range(t) if mask[row, s]]
        logs = [key[row, s].astype("float64") - (places[row, t] - places[row, s] - 1) * decay for s in earlier]
        values = [value[row, s] for s in earlier]
        if past is not None:
            logs, values = [*logs, past[0][row] - places[row, t] * decay], [*values, past[1][row]]
        logs, values = np.stack([*logs, bonus + key[row, t]]), np.stack([*values, value[row, t]])
        weights = np.exp(logs - logs.max(0))
        means[row, t] = (weights * values).sum(0) / weights.sum(0)
    return means


@pytest.mark.parametrize("scale", [1.0, 300.0])
@pytest.mark.parametrize("length", [1, 7, 65])
def test_any_length_in_any_chunks_is_the_formula(length, scale):
    """Keys of hundreds too: their exponentials are no numbers of any precision."""
    rng = np.random.default_rng(length)
    key, value = rng.normal(size=(2, 2, length, 4)).astype("float32")
    key = key * np.float32(scale)
    decay, bonus = np.array([1e-3, 0.1, 1.0, 30.0], "float32"), np.array([3.0, -2.0, 50.0, 0.0], "float32")
    past = (rng.normal(size=(2, 4)).astype("float32") * scale, rng.normal(size=(2, 4)).astype("float32"))
    holes = (rng.uniform(size=(2, length)) > 0.4) * 1.0
    for chunk_size in (1, 7, 64):
        for mask in (None, holes):
            options = (decay, bonus, chunk_size, None if mask is None else mask.astype("float32"))
            seen = np.ones((2, length)) if mask is None else mask
            output, _ = wkv(key, value, *options)
            expected = dense(key, value, decay, bonus, seen)
            np.testing.assert_allclose(output * seen[:, :, None], expected, atol=5e-6 * scale**0.5)
            output, _ = wkv(key, value, *options, past)
            expected = dense(key, value, decay, bonus, seen, past)
            np.testing.assert_allclose(output * seen[:, :, None], expected, atol=5e-6 * scale**0.5)


@pytest.mark.exhaustive
def test_a_hundred_thousand_tokens(read):
    layer = TimeMixing(chunk_size=8)
    x = np.random.default_rng(0).normal(size=(1, 100_000, 4)).astype("float32")
    layer.build(x.shape)
    layer.log_decay.assign(np.array([-20.0, -5.0, 0.0, 4.0]))  # Weights that never fade, and such that fade at once.
    whole = np.asarray(layer(x))
    output, state = read(layer, x, [1000] * 99 + [997, 1, 1, 1])
    assert {name: slab.shape for name, slab in state.items()} == {
        name: slab.shape for name, slab in layer.init_cache(1).items()
    }
    assert np.all(np.isfinite(output))
    np.testing.assert_allclose(output[:, -1000:], whole[:, -1000:], atol=1e-4)


def test_vectors_start_by_depth():
    """The first channel of the first layer forgets the slowest; mixes of deeper layers lean to the current token."""
    first, last = TimeMixing(layer_index=0, num_layers=3), TimeMixing(layer_index=2, num_layers=3)
    for layer in (first, last):
        layer.build((1, 1, 8))
    np.testing.assert_allclose(first.log_decay[0], -5.0)
    np.testing.assert_allclose(first.log_decay[-1], 3.0)
    np.testing.assert_allclose(first.log_decay[1], -5 + 8 * (1 / 7) ** 0.7, rtol=1e-6)
    np.testing.assert_allclose(last.log_decay[1], -5 + 8 * (1 / 7) ** 2.0, rtol=1e-6)
    np.testing.assert_allclose(first.bonus[:3], np.log(0.3) + np.array([0.0, 0.5, -0.5]), rtol=1e-6)
    key, value, receptance = (np.asarray(weight) for weight in first.token_shift.weights)
    np.testing.assert_allclose(key, np.arange(8) / 8)
    np.testing.assert_allclose(value, key)
    np.testing.assert_allclose(receptance, np.sqrt(key), rtol=1e-6)
    deep = np.asarray(last.token_shift.weights[1])
    np.testing.assert_allclose(deep, (np.arange(8) / 8) ** (1 / 3) + 0.3, rtol=1e-6)
    channel = ChannelMixing(4, layer_index=1, num_layers=2)
    channel.build((1, 1, 8))
    np.testing.assert_allclose(channel.token_shift.weights[0], np.sqrt(np.arange(8) / 8), rtol=1e-6)


def test_a_layer_outside_its_stack_is_refused():
    for cls in (TimeMixing, lambda **options: ChannelMixing(8, **options)):
        with pytest.raises(ValueError, match="layer_index"):
            cls(layer_index=2, num_layers=2)


def test_a_state_before_the_width_is_known_is_refused():
    with pytest.raises(ValueError, match="build the layer first"):
        TimeMixing().init_cache(1)
