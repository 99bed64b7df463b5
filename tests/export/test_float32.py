"""The float32 twin of a mixed precision model."""

import keras
import numpy as np
import pytest
from keras import layers

from keras_transformer.export.spec.float32 import float32_twin, uses_half_precision


class Unregistered(layers.Layer):
    """A layer that is not registered with Keras."""

    def build(self, shape):
        self.scale = self.add_weight(shape=shape[-1:], name="scale")

    def call(self, x):
        return x * self.scale


@pytest.fixture(params=("mixed_bfloat16", "mixed_float16", "bfloat16"))
def half(request):
    keras.utils.set_random_seed(0)
    keras.config.set_dtype_policy(request.param)
    try:
        x = keras.Input((6,), name="x")
        y = layers.BatchNormalization()(Unregistered()(layers.Dense(8, "gelu", name="float16")(x)))
        model = keras.Model(x, layers.Dense(3)(keras.ops.cast(y, "bfloat16")))
    finally:
        keras.config.set_dtype_policy("float32")
    model.layers[1].kernel.assign(np.random.default_rng(0).standard_normal((6, 8)))
    return model


def test_everything_is_float32_and_weights_are_the_same(half):
    before = [str(layer.dtype_policy.name) for layer in half.layers]
    twin = float32_twin(half)
    assert uses_half_precision(half)
    assert not uses_half_precision(twin)
    assert [layer.name for layer in twin.layers] == [layer.name for layer in half.layers], "names are not dtypes"
    for ours, theirs in zip(twin.get_weights(), half.get_weights(), strict=True):
        assert ours.dtype == np.float32
        np.testing.assert_array_equal(ours, theirs.astype("float32"))
    assert [str(layer.dtype_policy.name) for layer in half.layers] == before


def test_the_twin_is_more_exact_than_the_original(half):
    x = np.random.default_rng(1).standard_normal((16, 6)).astype("float32")
    exact = float32_twin(half)(x).numpy()
    rough = np.asarray(keras.ops.cast(half(x), "float32"))
    difference = np.abs(exact - rough).max()
    assert 0 < difference < 0.1 * np.abs(exact).max()


def test_a_float32_model_is_its_own_twin():
    model = keras.Sequential([keras.Input((2,)), layers.Dense(1)])
    assert float32_twin(model) is model
