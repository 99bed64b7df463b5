"""Parity with reference implementations: grouped heads and both rotary layouts."""

from pathlib import Path

import numpy as np

from keras_transformer.attention import MultiHeadAttention
from keras_transformer.positions import Rotary

DATA = Path(__file__).parents[1] / "data"


def test_grouped_query_attention_of_llama():
    golden = np.load(DATA / "gqa_llama_attention.npz")
    x, positions = golden["inputs/x"], golden["inputs/positions"]
    layer = MultiHeadAttention(
        4, 8, num_key_value_heads=2, use_bias=False, output_shape=16, position=Rotary(layout="halves")
    )
    layer.build(x.shape, x.shape)
    kernels = [
        golden[f"params/{name}_proj.weight"].T.reshape(16, heads, 8) for name, heads in (("q", 4), ("k", 2), ("v", 2))
    ]
    layer.set_weights([*kernels, golden["params/o_proj.weight"].T.reshape(4, 8, 16)])
    causal = layer(x, x, positions=positions, use_causal_mask=True)
    np.testing.assert_allclose(causal, golden["outputs/y"], atol=1e-6)
    np.testing.assert_allclose(layer(x, x, positions=positions), golden["outputs/y_bidirectional"], atol=1e-6)


def test_rotary_pairs_of_roformer():
    golden = np.load(DATA / "roformer_attention.npz")
    x = golden["inputs/x"]
    layer = MultiHeadAttention(2, 8, position="rotary")
    layer.build(x.shape, x.shape)
    weights = []
    for name in ("query", "key", "value"):
        weights.append(golden[f"params/{name}.weight"].T.reshape(16, 2, 8))
        weights.append(golden[f"params/{name}.bias"].reshape(2, 8))
    # The reference has no output projection: an identity.
    layer.set_weights([*weights, np.eye(16).reshape(2, 8, 16), np.zeros(16)])
    np.testing.assert_allclose(layer(x, x), golden["outputs/y"], atol=1e-6)
