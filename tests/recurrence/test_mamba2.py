"""Mamba-2 against the paper's recurrence in float64, token by token."""

import numpy as np
import pytest

from keras_transformer.recurrence import Mamba2


def by_hand(weights, x, heads, width, states, groups, taps, epsilon):
    """`h_t = exp(A Δ_t) h_{t - 1} + Δ_t b_t v_tᵀ`, `y_t = c_t h_t + d v_t`, with the parts around it, in float64."""
    length, values = x.shape[1], heads * width

    def project(name):
        return x.astype("float64") @ weights[f"{name}/kernel"] + weights[f"{name}/bias"]

    mixed = np.concatenate([project(name) for name in ("value", "key", "query")], axis=2)
    padded = np.concatenate([np.zeros((len(x), taps - 1, mixed.shape[2])), mixed], axis=1)
    filters = weights["convolution/kernel"][:, :, 0]
    mixed = np.tanh(sum(padded[:, i : i + length] * filters[i] for i in range(taps)) + weights["convolution/bias"])
    value = mixed[..., :values].reshape(len(x), length, heads, width)
    key, query = (
        np.repeat(part.reshape(len(x), length, groups, states), heads // groups, axis=2)
        for part in np.split(mixed[..., values:], 2, axis=2)
    )
    steps = np.log1p(np.exp(project("step") + weights["decay/step_bias"]))
    decay = np.exp(-np.exp(weights["decay/log_speed"]) * steps)
    state, y = np.zeros((len(x), heads, states, width)), np.zeros(value.shape)
    for t in range(length):
        written = np.einsum("bn,bns,bnh->bnsh", steps[:, t], key[:, t], value[:, t])
        state = decay[:, t, :, None, None] * state + written
        y[:, t] = np.einsum("bns,bnsh->bnh", query[:, t], state)
    y = (y + weights["skip"][:, None] * value).reshape(len(x), length, values)
    gate = project("gate")
    y = (y * gate / (1 + np.exp(-gate))).reshape(len(x), length, groups, -1)
    y = y / np.sqrt((y**2).mean(-1, keepdims=True) + epsilon)
    y = y.reshape(len(x), length, values) * weights["norm_scale"]
    return y @ weights["output/kernel"] + weights["output/bias"], state


@pytest.mark.parametrize("chunk_size", [1, 4, 64])
def test_outputs_and_state_are_those_of_the_recurrence(read, chunk_size):
    options = {"num_groups": 2, "kernel_size": 3, "use_bias": True, "activation": "tanh", "epsilon": 0.01}
    layer = Mamba2(4, 3, state_dim=5, chunk_size=chunk_size, **options)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 9, 6)).astype("float32")
    layer.build(x.shape)
    for weight in layer.weights:
        weight.assign(rng.normal(size=weight.shape))
    weights = {weight.path.split("/", 1)[-1]: np.asarray(weight, "float64") for weight in layer.weights}
    expected, expected_state = by_hand(weights, x, 4, 3, 5, 2, 3, 0.01)
    np.testing.assert_allclose(layer(x), expected, rtol=1e-5, atol=2e-5)
    output, state = read(layer, x, [4, 1, 1, 3])
    np.testing.assert_allclose(output, expected, rtol=1e-5, atol=2e-5)
    np.testing.assert_allclose(state["state"], expected_state, rtol=1e-5, atol=2e-5)


def test_padding_gives_what_each_row_gives_alone():
    """Biases make projections of padding other than zero, which no token may see."""
    layer = Mamba2(2, 4, state_dim=3, kernel_size=4, chunk_size=3, use_bias=True)
    x = np.random.default_rng(0).normal(size=(2, 8, 6)).astype("float32")
    layer.build(x.shape)
    for weight in layer.weights:
        weight.assign(np.random.default_rng(1).normal(size=weight.shape))
    mask = np.array([[False] * 3 + [True] * 5, [True] * 8])
    output = np.asarray(layer(x, query_mask=mask))
    np.testing.assert_allclose(output[0, 3:], layer(x[:1, 3:])[0], atol=2e-5)
    np.testing.assert_allclose(output[1], layer(x[1:])[0], atol=2e-5)


def test_groups_are_checked():
    with pytest.raises(ValueError, match="num_groups must divide num_heads=4"):
        Mamba2(4, 3, num_groups=3)
