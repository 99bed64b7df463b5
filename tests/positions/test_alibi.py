"""ALiBi against BLOOM, and its formula."""

from pathlib import Path

import numpy as np
import pytest

from keras_transformer.attention import LocalAttention, MultiHeadAttention, SoftmaxAttention
from keras_transformer.positions import ALiBi
from keras_transformer.positions.relative.alibi import alibi_slopes

GOLDEN = np.load(Path(__file__).parents[1] / "data" / "alibi_bloom.npz")


def test_slopes_for_any_number_of_heads():
    for heads in range(1, 34):
        np.testing.assert_allclose(alibi_slopes(heads), GOLDEN["outputs/slopes"][heads - 1, :heads], rtol=1e-6)


def test_attention_of_bloom():
    x, mask = GOLDEN["inputs/x"].astype("float64"), GOLDEN["inputs/attention_mask"].astype(bool)
    norm = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    norm = norm * GOLDEN["params/input_layernorm.weight"] + GOLDEN["params/input_layernorm.bias"]
    layer = MultiHeadAttention(4, 4, position="alibi")
    layer.build(x.shape, x.shape)
    kernels = GOLDEN["params/self_attention.query_key_value.weight"].reshape(4, 3, 4, 16)
    biases = GOLDEN["params/self_attention.query_key_value.bias"].reshape(4, 3, 4)
    weights = []
    for part in range(3):
        weights += [kernels[:, part].transpose(2, 0, 1), biases[:, part]]
    dense = GOLDEN["params/self_attention.dense.weight"].T.reshape(4, 4, 16)
    layer.set_weights([*weights, dense, GOLDEN["params/self_attention.dense.bias"]])
    output = np.asarray(layer(norm, norm, query_mask=mask, value_mask=mask, use_causal_mask=True))
    np.testing.assert_allclose(output[mask], GOLDEN["outputs/attention_out"][mask], atol=1e-6)


@pytest.mark.parametrize("symmetric", [True, False])
def test_bias_is_slope_times_distance(symmetric):
    query_positions, key_positions = np.array([[3, 4], [100, 7]]), np.array([0, 3, 9])
    distance = key_positions - query_positions[:, :, None]
    distance = -abs(distance) if symmetric else distance
    expected = distance[:, None] * np.array([2**-4, 2**-8, 2**-2]).reshape(1, 3, 1, 1)
    bias = ALiBi(symmetric).bias(np.zeros((2, 2, 3, 4)), query_positions, key_positions)
    np.testing.assert_allclose(bias, expected, rtol=1e-6)


def test_inside_windows():
    """Blocks of a window read the same biases."""
    x = np.random.default_rng(0).normal(size=(2, 13, 8)).astype("float32")
    local = MultiHeadAttention(2, 4, mechanism=LocalAttention(4), position="alibi")
    whole = MultiHeadAttention(2, 4, mechanism=SoftmaxAttention(), position="alibi", sliding_window=4)
    expected = whole(x, x)
    local.build(x.shape, x.shape)
    local.set_weights(whole.get_weights())
    np.testing.assert_allclose(local(x, x), expected, atol=1e-6)
