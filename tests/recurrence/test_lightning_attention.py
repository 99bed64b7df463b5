"""Lightning attention against MiniMax of transformers, and its decay by hand."""

import numpy as np
import pytest

from keras_transformer.recurrence import LightningAttention


def test_layer_of_transformers(golden, read):
    arrays = golden("lightning_attention")
    layer = LightningAttention(3, 6, layer_index=2, num_layers=4, chunk_size=16, activation="gelu")
    layer.build((None, None, 10))
    fused = arrays["params/qkv_proj.weight"].reshape(3, 3, 6, 10)  # Heads, then query, key and value.
    for index, name in enumerate(("query", "key", "value")):
        getattr(layer, f"{name}_dense").kernel.assign(fused[:, index].reshape(18, 10).T)
    layer.gate_dense.kernel.assign(arrays["params/output_gate.weight"].T)
    layer.norm_scale.assign(arrays["params/norm.weight"])
    layer.output_dense.kernel.assign(arrays["params/out_proj.weight"].T)
    x, mask, scale = arrays["x"], arrays["mask"], np.abs(arrays["output"]).max()
    np.testing.assert_allclose(layer(x), arrays["output"], atol=2e-6 * scale)
    masked = np.asarray(layer(x, query_mask=mask))
    np.testing.assert_allclose(masked[mask], arrays["masked_output"][mask], atol=2e-6 * scale)
    np.testing.assert_allclose(read(layer, x, [9, 1, 20, 10])[0], arrays["output"], atol=2e-6 * scale)


def test_decay_of_two_tokens():
    """With one token of weight 1, the state at token t is λ^t: `exp(-t · 2^(-8 h / N) (1 - l / (L - 1)))`."""
    layer = LightningAttention(4, 1, layer_index=1, num_layers=3, activation="linear")
    layer.build((None, None, 4))
    for name in ("query", "key", "value"):
        getattr(layer, f"{name}_dense").kernel.assign(np.eye(4))
    x = np.zeros((1, 3, 4), "float32")
    x[0, 0] = 1.0
    _, cache = layer(x, cache=layer.init_cache(1), cache_index=0)
    slopes = np.array([1 / 4, 1 / 16, 1 / 64, 1 / 256]) / 2
    np.testing.assert_allclose(np.ravel(cache["state"]), np.exp(-2 * slopes), rtol=1e-4)


def test_layer_index_is_checked():
    with pytest.raises(ValueError, match="layer_index must be in"):
        LightningAttention(2, 4, layer_index=2, num_layers=2)
