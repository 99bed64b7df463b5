"""The relative positions of Transformer-XL against its authors' code, with keys that come before the queries."""

from pathlib import Path

import numpy as np
import pytest

from keras_transformer.attention import LocalAttention, MultiHeadAttention
from keras_transformer.positions import TransformerXLRelative

GOLDEN = np.load(Path(__file__).parents[1] / "data" / "transformer_xl_attention.npz")


def golden_layer(**options):
    layer = MultiHeadAttention(2, 8, use_bias=False, position="transformer_xl", **options)
    layer.build((None, None, 16), (None, None, 16))
    parts = np.split(GOLDEN["params/qkv_net.weight"], 3)
    for part, dense in zip(parts, (layer.query_dense, layer.key_dense, layer.value_dense), strict=True):
        dense.kernel.assign(part.T.reshape(16, 2, 8))
    layer.output_dense.kernel.assign(GOLDEN["params/o_net.weight"].T.reshape(2, 8, 16))
    layer.position.kernel.assign(GOLDEN["params/r_net.weight"].T.reshape(16, 2, 8))
    layer.position.content_bias.assign(GOLDEN["params/r_w_bias"])
    layer.position.position_bias.assign(GOLDEN["params/r_r_bias"])
    return layer


def finish(x, attended):
    """The residual and the norm after it, which are not the layer's."""
    x = x + np.asarray(attended, "float64")
    norm = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    return norm * GOLDEN["params/layer_norm.weight"] + GOLDEN["params/layer_norm.bias"]


def test_attention_of_the_reference():
    layer = golden_layer()
    x, memory = (GOLDEN[f"inputs/{name}"].swapaxes(0, 1) for name in ("w", "mems"))
    keys = np.concatenate([memory, x], axis=1)
    mask = np.arange(14) <= np.arange(6, 14)[:, None]
    positions = (np.arange(6, 14), np.arange(14))
    output, scores = layer(x, keys, positions=positions, attention_mask=mask, return_attention_scores=True)
    np.testing.assert_allclose(finish(x, output), GOLDEN["outputs/y"].swapaxes(0, 1), atol=1e-5)
    np.testing.assert_allclose(scores, GOLDEN["outputs/probs"].transpose(2, 3, 0, 1), atol=1e-6)
    alone = layer(x, x, use_causal_mask=True)
    np.testing.assert_allclose(finish(x, alone), GOLDEN["outputs/y_no_memory"].swapaxes(0, 1), atol=1e-5)


def test_far_positions_and_windows_change_nothing():
    layer, x = golden_layer(sliding_window=3), GOLDEN["inputs/w"].swapaxes(0, 1)
    expected = layer(x, x)
    shifted = np.arange(8) + np.array([[0], [1000]])
    np.testing.assert_allclose(layer(x, x, positions=shifted), expected, atol=1e-5)
    local = golden_layer(mechanism=LocalAttention(3))
    np.testing.assert_allclose(local(x, x), expected, atol=1e-5)


def test_refused():
    with pytest.raises(ValueError, match="width"):
        TransformerXLRelative(width=3)
    with pytest.raises(ValueError, match="even width"):
        TransformerXLRelative().build((1, 2, 1, 3), (1, 2, 1, 3))
