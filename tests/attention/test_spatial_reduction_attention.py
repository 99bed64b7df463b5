"""Keys and values of spatial-reduction attention are a convolution of the grid, normalized."""

import numpy as np
import pytest

from keras_transformer.attention import SpatialReductionAttention, attention_maps
from keras_transformer.feedforward import MixFeedForward
from keras_transformer.models import SegFormer, SegFormerSize
from laws import randomize

GRID = np.random.default_rng(0).normal(size=(2, 5, 7, 6)).astype("float32")


def softmax(x):
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


@pytest.mark.parametrize("ratio", [1, 2, 3])
def test_attention_is_that_of_the_paper(ratio):
    layer = SpatialReductionAttention(2, 4, ratio, layer_norm_epsilon=0.1)
    layer(GRID, GRID)
    randomize(layer)
    weight = {each.path.removeprefix(f"{layer.name}/"): np.asarray(each).astype("float64") for each in layer.weights}
    x = GRID.astype("float64")
    tokens = keys = x.reshape(2, 35, 6)
    if ratio > 1:
        rows, columns = 5 // ratio, 7 // ratio
        parts = x[:, : rows * ratio, : columns * ratio].reshape(2, rows, ratio, columns, ratio, 6)
        keys = np.einsum("brictd,itde->brce", parts, weight["reduction/kernel"]) + weight["reduction/bias"]
        keys = keys.reshape(2, rows * columns, 6)
        keys = (keys - keys.mean(-1, keepdims=True)) / np.sqrt(keys.var(-1, keepdims=True) + 0.1)
        keys = keys * weight["reduction_norm/gamma"] + weight["reduction_norm/beta"]

    def project(x, name):
        return np.einsum("btd,dnh->bnth", x, weight[f"attention/{name}/kernel"]) + weight[
            f"attention/{name}/bias"
        ].reshape(1, 2, 1, 4)

    scores = softmax(project(tokens, "query") @ project(keys, "key").swapaxes(-1, -2) / 2)
    mixed = np.einsum("bnts,bnsh,nhd->btd", scores, project(keys, "value"), weight["attention/attention_output/kernel"])
    expected = (mixed + weight["attention/attention_output/bias"]).reshape(x.shape)
    np.testing.assert_allclose(np.asarray(layer(GRID, GRID)), expected, atol=2e-5)


def test_mix_feed_forward_reads_the_neighbors_of_a_token():
    layer = MixFeedForward(5, kernel_size=3, activation="silu")
    layer(GRID)
    randomize(layer)
    weight = {each.path.removeprefix(f"{layer.name}/"): np.asarray(each).astype("float64") for each in layer.weights}
    hidden = GRID.astype("float64") @ weight["hidden/kernel"] + weight["hidden/bias"]
    padded, mixed = np.pad(hidden, [(0, 0), (1, 1), (1, 1), (0, 0)]), np.zeros_like(hidden)
    for row in range(3):
        for column in range(3):
            mixed += padded[:, row : row + 5, column : column + 7] * weight["depthwise/kernel"][row, column, :, 0]
    mixed += weight["depthwise/bias"]
    expected = mixed / (1 + np.exp(-mixed)) @ weight["output/kernel"] + weight["output/bias"]
    np.testing.assert_allclose(np.asarray(layer(GRID)), expected, atol=2e-5 * np.abs(expected).max())


def test_what_is_not_supported_is_refused():
    layer = SpatialReductionAttention(2, 4, 3)
    with pytest.raises(ValueError, match="in a grid"):
        layer(GRID[:, 0], GRID[:, 0])
    with pytest.raises(ValueError, match="smaller than reduction_ratio=3"):
        layer(GRID[:, :2], GRID[:, :2])
    with pytest.raises(ValueError, match="masks"):
        layer(GRID, GRID, value_mask=np.ones((2, 35), bool))
    with pytest.raises(ValueError, match="'attention_mask'"):
        layer(GRID, GRID, attention_mask=np.ones((35, 35), bool))
    with pytest.raises(ValueError, match="kernel_size"):
        MixFeedForward(4, kernel_size=2)
    with pytest.raises(ValueError, match="intermediate_dim"):
        MixFeedForward(0)


def test_maps_are_those_of_the_reduced_grid():
    size = SegFormerSize((8,), (2,), (2,), (3,), (2,), (2,), (1,))
    maps = attention_maps(SegFormer(size, image_size=(9, 14)))(np.ones((3, 9, 14, 3), "float32"))
    assert {tuple(scores.shape) for scores in maps.values()} == {(3, 2, 35, 6)}
    for scores in maps.values():
        np.testing.assert_allclose(np.sum(scores, axis=-1), 1, atol=1e-5)
