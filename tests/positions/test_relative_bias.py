"""Relative biases against T5."""

from pathlib import Path

import keras
import numpy as np
import pytest

from keras_transformer.attention import LocalAttention, MultiHeadAttention, SoftmaxAttention
from keras_transformer.blocks import EncoderBlock
from keras_transformer.feedforward import DenseFeedForward
from keras_transformer.positions import RelativeBias
from keras_transformer.positions.relative.relative_bias import relative_buckets
from keras_transformer.utils.serialization import load_model

GOLDEN = np.load(Path(__file__).parents[1] / "data" / "t5_attention.npz")


@pytest.mark.parametrize("bidirectional", [True, False])
def test_buckets_of_t5(bidirectional):
    table = relative_buckets(32, 128, bidirectional)
    found = table[np.clip(GOLDEN["outputs/distances"], -128, 128) + 128]
    np.testing.assert_array_equal(found, GOLDEN["outputs/buckets_32_128"][0 if bidirectional else 1])


def t5_attention():
    layer = MultiHeadAttention(2, 8, mechanism=SoftmaxAttention("dot"), use_bias=False, position=RelativeBias())
    layer.build((None, None, 16), (None, None, 16))
    for name, dense in (("q", layer.query_dense), ("k", layer.key_dense), ("v", layer.value_dense)):
        dense.kernel.assign(GOLDEN[f"params/{name}.weight"].T.reshape(16, 2, 8))
    layer.output_dense.kernel.assign(GOLDEN["params/o.weight"].T.reshape(2, 8, 16))
    layer.position.embeddings.assign(GOLDEN["params/relative_attention_bias.weight"])
    return layer


def test_attention_of_t5():
    layer, x, kv = t5_attention(), GOLDEN["inputs/x"], GOLDEN["inputs/kv"]
    mask = GOLDEN["inputs/attention_mask"].astype(bool)
    np.testing.assert_allclose(layer(x, x, value_mask=mask), GOLDEN["outputs/y"], atol=1e-5)
    np.testing.assert_allclose(layer(x, kv), GOLDEN["outputs/y_cross"], atol=1e-5)
    places = np.arange(14)
    bias = layer.position.bias(np.zeros((1, 14, 2, 8)), places, places)
    np.testing.assert_allclose(bias, GOLDEN["outputs/bias"], atol=1e-6)


def test_positions_of_each_row_and_windows():
    layer, x = t5_attention(), GOLDEN["inputs/x"]
    shifted = np.arange(14) + np.array([[0], [900]])
    np.testing.assert_allclose(layer(x, x, positions=shifted), layer(x, x), atol=1e-6)
    local = MultiHeadAttention(
        2, 8, mechanism=LocalAttention(5, scoring="dot"), use_bias=False, position=layer.position
    )
    local.build(x.shape, x.shape)
    for name in ("query_dense", "key_dense", "value_dense", "output_dense"):
        getattr(local, name).set_weights(getattr(layer, name).get_weights())
    layer._sliding_window = 5
    np.testing.assert_allclose(local(x, x), layer(x, x), atol=1e-6)


@pytest.mark.exhaustive
def test_layers_share_one_instance(tmp_path):
    """It is one weight, trained by all layers, and is one again when the model is loaded."""
    position, x = RelativeBias(8, 8), keras.Input((None, 8))
    y = x
    for _ in range(2):
        y = EncoderBlock(MultiHeadAttention(2, 4, position=position), DenseFeedForward(8))(y)
    model = keras.Model(x, y)
    assert [w.path for w in model.weights if "embeddings" in w.path] == [position.embeddings.path]
    model.compile("sgd", "mse", jit_compile=False)
    inputs = np.random.default_rng(0).normal(size=(2, 6, 8)).astype("float32")
    model.fit(inputs, inputs, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded.predict(inputs, verbose=0), model.predict(inputs, verbose=0))
    assert len(loaded.weights) == len(model.weights)


def test_refused():
    with pytest.raises(ValueError, match="num_buckets"):
        RelativeBias(num_buckets=7)
    with pytest.raises(ValueError, match="max_distance must be above 8"):
        RelativeBias(max_distance=8)
