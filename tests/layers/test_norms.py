"""The norm that Keras has not."""

import keras
import numpy as np

from keras_transformer.layers.norms import NORMS, ZeroCenteredRMSNormalization

X = np.random.default_rng(0).normal(size=(2, 3, 4, 6)).astype("float32")


def test_its_weight_is_the_distance_from_one():
    layer = ZeroCenteredRMSNormalization(epsilon=0.3)
    layer.build(X.shape)
    np.testing.assert_array_equal(layer.scale, np.zeros(6))
    weight = np.random.default_rng(1).normal(size=6)
    layer.scale.assign(weight)
    x = X.astype("float64")
    expected = x / np.sqrt((x**2).mean(-1, keepdims=True) + 0.3) * (1 + weight)
    np.testing.assert_allclose(layer(X), expected, atol=1e-6)


def test_under_mixed_precision_the_weight_is_not_rounded():
    layer = ZeroCenteredRMSNormalization(dtype="mixed_bfloat16")
    layer.build(X.shape)
    layer.scale.assign(np.full(6, 0.00390625 / 2))  # 1 + w is no bfloat16.
    wide = ZeroCenteredRMSNormalization(dtype="float32")
    wide.build(X.shape)
    wide.set_weights(layer.get_weights())
    x = keras.ops.cast(X, "bfloat16")
    expected = keras.ops.cast(wide(keras.ops.cast(x, "float32")), "bfloat16")
    found = layer(x)
    assert keras.backend.standardize_dtype(found.dtype) == "bfloat16"
    np.testing.assert_array_equal(keras.ops.cast(found, "float32"), keras.ops.cast(expected, "float32"))


def test_its_config_keeps_epsilon():
    layer = NORMS["zero_centered_rms_norm"](epsilon=0.3)
    assert type(layer).from_config(layer.get_config()).epsilon == 0.3
