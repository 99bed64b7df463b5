"""Sub-LN: where its norms stand, and how its weights start."""

import keras
import numpy as np
import pytest

from keras_transformer.attention import MultiHeadAttention
from keras_transformer.blocks import DecoderBlock, SubLNResidual
from keras_transformer.feedforward import DenseFeedForward


def normalized(x):
    x = x.astype("float64")
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-3)


def test_the_context_is_normalized_over_all_heads_before_the_output():
    layer = MultiHeadAttention(2, 3, context_norm="layer_norm", use_bias=False)
    x = np.random.default_rng(0).normal(size=(2, 5, 4)).astype("float32")
    found = np.asarray(layer(x, x))
    plain = MultiHeadAttention(2, 3, use_bias=False)
    plain.build(x.shape, x.shape)
    plain.set_weights([weight for weight in layer.get_weights() if weight.ndim > 1])
    plain.output_dense.kernel.assign(np.eye(6)[:, :4].reshape(2, 3, 4))
    first = np.asarray(plain(x, x))
    plain.output_dense.kernel.assign(np.roll(np.eye(6), 4, axis=0)[:, :4].reshape(2, 3, 4))
    context = np.concatenate([first, np.asarray(plain(x, x))[..., :2]], axis=-1)
    kernel = np.asarray(layer.output_dense.kernel).reshape(6, 4)
    np.testing.assert_allclose(found, normalized(context) @ kernel, atol=1e-4)


def test_the_hidden_layer_is_normalized_before_the_output():
    layer = DenseFeedForward(6, hidden_norm="layer_norm", use_bias=False)
    x = np.random.default_rng(0).normal(size=(2, 5, 4)).astype("float32")
    found = np.asarray(layer(x))
    hidden, output = (np.asarray(weight) for weight in layer.weights if len(weight.shape) == 2)
    np.testing.assert_allclose(found, normalized(np.maximum(x @ hidden, 0)) @ output, atol=1e-4)


@pytest.mark.parametrize(
    "residual, gain",
    [
        (SubLNResidual.of_stack(6), np.sqrt(np.log(12))),
        (SubLNResidual.of_encoder(6, 4), np.sqrt(np.log(12) * np.log(12) / 3)),
        (SubLNResidual.of_decoder(4), np.sqrt(np.log(12))),
    ],
)
def test_kernels_of_values_and_outputs_start_larger(residual, gain):
    assert residual.gain == pytest.approx(gain)
    kernels = {}
    for name, scheme in (("plain", "pre"), ("scaled", residual)):
        attention = MultiHeadAttention(2, 3, kernel_initializer=keras.initializers.GlorotUniform(seed=1))
        feedforward = DenseFeedForward(6, kernel_initializer=keras.initializers.GlorotUniform(seed=2))
        block = DecoderBlock(attention, feedforward, residual=scheme)
        block.build((None, 5, 4))
        kernels[name] = {
            weight.path.split("/")[-2]: np.asarray(weight) for weight in block.weights if "kernel" in weight.path
        }
    ratios = {name: (kernel / kernels["plain"][name]).mean() for name, kernel in kernels["scaled"].items()}
    for name, ratio in ratios.items():
        assert ratio == pytest.approx(1.0 if name in ("query", "key") else gain, rel=1e-5), name
    assert len(ratios) == 6


def test_a_gain_of_nothing_is_refused():
    with pytest.raises(ValueError, match="above 0"):
        SubLNResidual(gain=0.0)
