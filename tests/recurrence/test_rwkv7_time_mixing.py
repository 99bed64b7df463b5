"""Time mixing of RWKV-7 against the paper's formulas in float64, token by token."""

import numpy as np
import pytest

from keras_transformer.recurrence import ChannelMixing, RWKV7TimeMixing


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def by_hand(layer, x, first_value=None):
    """Section 4.1 of arXiv 2503.14456: the output and the state, transposed, from the weights of a layer of two heads."""
    w = {weight.path.split("/", 1)[-1]: np.asarray(weight, "float64") for weight in layer.weights}
    previous = np.concatenate([np.zeros_like(x[:, :1]), x[:, :-1]], axis=1).astype("float64")
    mix = {name: x + w[f"token_shift/mix_{name}"] * (previous - x) for name in layer.token_shift.mixes}

    def low_rank(name, x, activation=lambda hidden: hidden):
        return activation(x @ w[f"{name}_input/kernel"]) @ w[f"{name}/kernel"]

    receptance, key, value = (mix[name] @ w[f"{name}/kernel"] for name in ("receptance", "key", "value"))
    if first_value is not None:
        value = value + (first_value - value) * sigmoid(w["value_mix_bias"] + low_rank("value_mix", mix["value"]))
    decay = np.exp(-np.exp(-0.5) * sigmoid(w["decay_bias"] + low_rank("decay", mix["decay"], np.tanh)))
    rate = sigmoid(w["rate_bias"] + low_rank("rate", mix["rate"]))
    gate = low_rank("gate", mix["gate"], sigmoid)
    removed = (key * w["removal_scale"]).reshape(*x.shape[:2], 2, -1)
    removed /= np.linalg.norm(removed, axis=-1, keepdims=True)
    key = key * (1 + (rate - 1) * w["rate_scale"])
    receptance, key, value, decay, rate = (
        part.reshape(removed.shape) for part in (receptance, key, value, decay, rate)
    )
    state, outputs = np.zeros((len(x), 2, removed.shape[3], removed.shape[3])), np.zeros(removed.shape)
    for b, t, n in np.ndindex(removed.shape[:3]):
        c, v = removed[b, t, n], value[b, t, n]
        transition = np.diag(decay[b, t, n]) - np.outer(c, rate[b, t, n] * c)
        state[b, n] = state[b, n] @ transition + np.outer(v, key[b, t, n])  # As in the paper: values by keys.
        outputs[b, t, n] = state[b, n] @ receptance[b, t, n]
    centered = outputs - outputs.mean(-1, keepdims=True)
    normalized = centered / np.sqrt((centered**2).mean(-1, keepdims=True) + layer.epsilon)
    normalized = normalized.reshape(x.shape) * w["norm_scale"] + w["norm_offset"]
    bonus = ((receptance * key * w["bonus"]).sum(-1, keepdims=True) * value).reshape(x.shape)
    return (normalized + bonus) * gate @ w["output/kernel"], state


def randomized(**options):
    layer = RWKV7TimeMixing(2, decay_rank=3, rate_rank=4, gate_rank=5, epsilon=0.01, **options)
    layer.build((None, None, 8))
    rng = np.random.default_rng(0)
    for weight in layer.weights:
        weight.assign(rng.normal(size=weight.shape) * 0.5)
    return layer


@pytest.mark.parametrize("length, chunk_size", [(1, 32), (9, 4), (70, 32)])
def test_formulas_of_the_paper(length, chunk_size, read):
    x, first = np.random.default_rng(1).normal(size=(2, 2, length, 8)).astype("float32")
    layer = randomized(chunk_size=chunk_size)
    expected, state = by_hand(layer, x)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(layer(x), expected, atol=2e-6 * scale)
    sizes = [length] if length == 1 else [length - 4, 1, 3]
    output, cache = read(layer, x, sizes)
    np.testing.assert_allclose(output, expected, atol=2e-6 * scale)
    np.testing.assert_allclose(cache["state"], state.transpose(0, 1, 3, 2), atol=2e-5)
    layer = randomized(chunk_size=chunk_size, value_rank=2)
    expected, _ = by_hand(layer, x, first)
    np.testing.assert_allclose(layer(x, first_value=first), expected, atol=2e-6 * np.abs(expected).max())


def test_value_is_that_of_the_first_layer():
    layer, x = randomized(), np.random.default_rng(1).normal(size=(2, 5, 8)).astype("float32")
    mask = np.array([[True] * 5, [True, True, False, False, False]])
    mix, kernel = (np.asarray(weight) for weight in (layer.token_shift.weights[3], layer.value_dense.kernel))
    previous = np.concatenate([np.zeros_like(x[:, :1]), x[:, :-1]], axis=1)
    expected = (x + mix * (previous - x)) @ kernel
    np.testing.assert_allclose(np.asarray(layer.value(x, mask))[mask], expected[mask], atol=1e-5)
    _, cache = layer(x[:, :3], cache=layer.init_cache(2), cache_index=0)
    np.testing.assert_allclose(layer.value(x[:, 3:], cache=cache), expected[:, 3:], atol=1e-5)


def test_padding_on_the_right_of_a_chunk():
    """Each row of a ragged batch, continued after its padding, is what the row alone gives."""
    layer, x = randomized(chunk_size=4), np.random.default_rng(0).normal(size=(3, 12, 8)).astype("float32")
    whole, lengths = np.asarray(layer(x)), np.array([7, 2, 1])
    mask = np.arange(7) < lengths[:, None]
    garbage = np.where(mask[:, :, None], x[:, :7], 50.0)
    output, cache = layer(garbage, cache=layer.init_cache(3), query_mask=mask, cache_index=0)
    np.testing.assert_allclose(np.asarray(output)[mask], whole[:, :7][mask], atol=2e-5)
    following = np.stack([row[length : length + 5] for row, length in zip(x, lengths, strict=True)])
    output, _ = layer(following, cache=cache, cache_index=lengths.astype("int32"))
    expected = np.stack([row[length : length + 5] for row, length in zip(whole, lengths, strict=True)])
    np.testing.assert_allclose(output, expected, atol=2e-5)


def test_starts_are_those_of_the_authors():
    """The first layer of two, 8 channels in 2 heads, by the authors' code."""
    layer = RWKV7TimeMixing(2, value_rank=2, layer_index=1, num_layers=2)
    layer.build((None, None, 8))
    n = np.arange(8)
    zigzag = ((n % 4) - 1.5) / 1.5
    zigzag *= np.abs(zigzag)
    np.testing.assert_allclose(layer.decay_bias, -6 + 6 * (n / 7) ** 2 + 0.5 + 2.5 * zigzag, atol=1e-6)
    np.testing.assert_allclose(layer.rate_bias, -0.19 + 0.3 * zigzag + 0.4 * (n / 7 - 0.5), atol=1e-6)
    np.testing.assert_allclose(layer.value_mix_bias, 0.73 - 0.4 * (n / 7 - 0.5), atol=1e-6)
    np.testing.assert_allclose(layer.removal_scale, 0.71 - 0.1 * (n / 7 - 0.5), atol=1e-6)
    np.testing.assert_allclose(layer.token_shift.weights[0], 1 - (n / 8) ** 0.1, atol=1e-6)
    np.testing.assert_allclose(layer.token_shift.weights[1], 1 - (n / 8) ** 0.45, atol=1e-6)
    np.testing.assert_allclose(layer.norm_scale, np.ones(8))
    first = RWKV7TimeMixing(2, num_layers=4)
    first.build((None, None, 8))
    np.testing.assert_allclose(first.norm_scale, np.full(8, 0.25**0.7), rtol=1e-6)
    np.testing.assert_allclose(first.decay_bias, -6 + 6 * (n / 7) + 0.5 + 2.5 * zigzag, atol=1e-6)


def test_channel_mixing_without_receptance():
    """`relu(k)² W_v`, where k is a projection of the token with a share of the previous one."""
    layer = ChannelMixing(5, layer_index=1, num_layers=2, use_receptance=False)
    x = np.random.default_rng(0).normal(size=(1, 4, 6)).astype("float32")
    output = layer(x)
    share = 1 - (np.arange(6) / 6) ** (0.5**4)
    previous = np.concatenate([np.zeros_like(x[:, :1]), x[:, :-1]], axis=1)
    hidden = np.maximum((x + share * (previous - x)) @ np.asarray(layer.key_dense.kernel), 0) ** 2
    np.testing.assert_allclose(output, hidden @ np.asarray(layer.output_dense.kernel), atol=1e-5)
    assert not hasattr(layer, "receptance_dense")


def test_arguments_are_checked():
    x = np.ones((1, 3, 8), "float32")
    with pytest.raises(ValueError, match="num_heads must divide the width 8"):
        RWKV7TimeMixing(3)(x)
    with pytest.raises(ValueError, match="first_value is required if value_rank is set"):
        RWKV7TimeMixing(2, value_rank=3)(x)
    with pytest.raises(ValueError, match="refused otherwise"):
        RWKV7TimeMixing(2)(x, first_value=x)
