"""adaLN-Zero in encoder and decoder blocks."""

import keras
import numpy as np
import pytest

from keras_transformer.attention import MultiHeadAttention
from keras_transformer.blocks import AdaLNZeroResidual, DecoderBlock, EncoderBlock, PreNormResidual
from keras_transformer.feedforward import DenseFeedForward

RANDOM = np.random.default_rng(0)
X, CONDITION = RANDOM.normal(size=(2, 3, 8)).astype("float32"), RANDOM.normal(size=(2, 5)).astype("float32")


def block(cls=EncoderBlock, **options):
    residual = AdaLNZeroResidual(condition_dim=5)
    return cls(MultiHeadAttention(2, 4), DenseFeedForward(16), **{"residual": residual, **options})


@pytest.mark.parametrize("norm, own", [("layer_norm", 0), ("rms_norm", 1)])
def test_formula(norm, own):
    residual = AdaLNZeroResidual(norm, condition_dim=5)
    residual.build(X.shape)
    assert len(residual.norms["norm"].weights) == own
    weights = {weight.path.split("/", 1)[1]: RANDOM.normal(size=weight.shape) for weight in residual.weights}
    residual.set_weights(list(weights.values()))
    silu = CONDITION / (1 + np.exp(-CONDITION))
    modulation = silu @ weights["modulation/projection/kernel"] + weights["modulation/projection/bias"]
    gate = silu @ weights["gate/kernel"] + weights["gate/bias"]
    shift, scale = modulation[:, None, :8], modulation[:, None, 8:]
    normalized = np.asarray(residual.norms["norm"](X))
    np.testing.assert_allclose(
        np.asarray(residual.pre(X, condition=CONDITION)), normalized * (1 + scale) + shift, atol=1e-4
    )
    np.testing.assert_allclose(
        np.asarray(residual.post(X, 2 * X, condition=CONDITION)), X + gate[:, None] * 2 * X, atol=1e-4
    )


@pytest.mark.parametrize("cls", [EncoderBlock, DecoderBlock])
def test_block_starts_as_the_identity_and_depends_on_the_condition(cls):
    layer = block(cls)
    np.testing.assert_array_equal(np.asarray(layer(X, condition=CONDITION)), X)
    random = np.random.default_rng(1)
    layer.set_weights([random.normal(0.1, 0.3, weight.shape) for weight in layer.weights])
    once, again = (np.asarray(layer(X, condition=condition)) for condition in (CONDITION, -CONDITION))
    assert np.abs(once - again).max() > 0.1
    of_tokens = np.asarray(layer(X, condition=np.repeat(CONDITION[:, None], 3, axis=1)))
    np.testing.assert_allclose(of_tokens, once, atol=1e-5)


@pytest.mark.parametrize("recompute", [False, True])
def test_gradient_reaches_the_condition(recompute):
    source = keras.Input((5,))
    layer = block(recompute=recompute)
    dense = keras.layers.Dense(5, kernel_initializer="zeros", bias_initializer="ones")
    tokens = keras.Input((3, 8))
    model = keras.Model([tokens, source], layer(tokens, condition=dense(source)))
    for weight in layer.weights:
        weight.assign(RANDOM.normal(0.1, 0.3, weight.shape))
    model.compile(keras.optimizers.SGD(1.0), "mse")
    model.train_on_batch([X, CONDITION], np.zeros_like(X))
    assert np.all(np.abs(np.asarray(dense.kernel)) > 0)


def test_condition_is_neither_missing_nor_ignored():
    with pytest.raises(ValueError, match="needs a condition"):
        block()(X)
    for cls in (EncoderBlock, DecoderBlock):
        with pytest.raises(ValueError, match="takes a condition"):
            block(cls, residual="pre")(X, condition=CONDITION)
    # One scheme of the block may take it, the other not.
    layer = block(residual=PreNormResidual(), mixer_residual=AdaLNZeroResidual(condition_dim=5))
    assert tuple(layer(X, condition=CONDITION).shape) == X.shape
