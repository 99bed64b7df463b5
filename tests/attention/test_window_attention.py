"""Window attention of a grid against attention over all pairs, computed in float64; positions of rows and columns."""

import numpy as np
import pytest

from keras_transformer.attention import WindowAttention
from keras_transformer.positions import DecomposedGridBias

GRID, HEADS, WIDTH = (5, 4), 2, 3


def layer_of(window_size):
    layer = WindowAttention(HEADS, WIDTH, GRID, window_size)
    layer.build((None, 20, 6))
    rng = np.random.default_rng(0)
    layer.set_weights([rng.normal(size=weight.shape) for weight in layer.get_weights()])
    return layer


def expected(layer, x, window):
    """By loops over windows and pairs; places beyond the grid are zeros, which are attended to."""
    weights = {weight.path.split("attention/")[-1]: np.asarray(weight).astype("float64") for weight in layer.weights}
    height, width = (-(-side // window) * window for side in GRID)
    padded = np.zeros((len(x), height, width, x.shape[-1]))
    padded[:, : GRID[0], : GRID[1]] = x.reshape(len(x), *GRID, -1)
    query, key, value = (
        np.einsum("bhwd,dnk->bhwnk", padded, weights[f"{name}/kernel"]) + weights[f"{name}/bias"]
        for name in ("query", "key", "value")
    )
    rows, columns = (weights[f"position_bias/{name}_embeddings"] for name in ("row", "column"))
    context = np.zeros_like(query)
    for top in range(0, height, window):
        for left in range(0, width, window):
            places = [(top + i, left + j) for i in range(window) for j in range(window)]
            for i, j in places:
                scores = np.stack(
                    [
                        np.einsum("bnk,bnk->bn", query[:, i, j], key[:, k, m]) / np.sqrt(WIDTH)
                        + query[:, i, j] @ rows[i - k + window - 1]
                        + query[:, i, j] @ columns[j - m + window - 1]
                        for k, m in places
                    ],
                    axis=-1,
                )
                shares = np.exp(scores - scores.max(-1, keepdims=True))
                shares /= shares.sum(-1, keepdims=True)
                values = np.stack([value[:, k, m] for k, m in places], axis=2)
                context[:, i, j] = np.einsum("bns,bnsk->bnk", shares, values)
    output = np.einsum("bhwnk,nkd->bhwd", context, weights["attention_output/kernel"])
    output = output + weights["attention_output/bias"]
    return output[:, : GRID[0], : GRID[1]].reshape(x.shape)


@pytest.mark.parametrize("window_size", [2, 3, 6])
def test_windows_that_do_not_divide_the_grid_are_padded(window_size):
    layer, x = layer_of(window_size), np.random.default_rng(1).normal(size=(2, 20, 6)).astype("float32")
    found = np.asarray(layer(x, x))
    np.testing.assert_allclose(found, expected(layer, x, window_size), atol=2e-6 * np.abs(found).max())


def test_without_windows_every_token_sees_the_grid():
    """Of a grid that is not square: distances in rows and columns are not mixed up."""
    position = DecomposedGridBias((2, 3))
    position.build((None, 6, 2, 4))
    rng = np.random.default_rng(0)
    position.set_weights([rng.normal(size=weight.shape) for weight in position.get_weights()])
    rows, columns = position.get_weights()
    query = rng.normal(size=(2, 6, 2, 4)).astype("float32")
    found = np.asarray(position.bias(query, np.arange(6), np.arange(6)))
    for i in range(6):
        for j in range(6):
            vector = rows[i // 3 - j // 3 + 1] + columns[i % 3 - j % 3 + 2]
            np.testing.assert_allclose(found[:, :, i, j], query[:, i] @ vector, atol=1e-5)


def test_padding_changes_nothing():
    layer, rng = layer_of(3), np.random.default_rng(1)
    x, mask = rng.normal(size=(1, 20, 6)).astype("float32"), np.ones((1, 20), bool)
    mask[:, [3, 11]] = False
    other = np.where(mask[..., None], x, 9.0).astype("float32")
    first, second = (np.asarray(layer(each, each, query_mask=mask, value_mask=mask)) for each in (x, other))
    np.testing.assert_array_equal(first[mask], second[mask])


def test_tokens_of_another_grid_are_refused():
    with pytest.raises(ValueError, match="5 x 4 has 20 tokens"):
        WindowAttention(2, 4, GRID, 3).build((None, 19, 6))
    with pytest.raises(ValueError, match="2 x 3 has 6 tokens"):
        DecomposedGridBias((2, 3)).bias(np.ones((1, 5, 2, 4), "float32"), np.arange(5), np.arange(5))
