"""The decoder block of RWKV-7: what the first block hands to the others."""

import json

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.backend.gradients.vjp import vjp
from keras_transformer.blocks import ValueResidualBlock
from keras_transformer.recurrence import ChannelMixing, RWKV7TimeMixing


def block(value_rank=None, **options):
    made = ValueResidualBlock(
        RWKV7TimeMixing(2, value_rank=value_rank), ChannelMixing(12, use_receptance=False), norm="rms_norm", **options
    )
    made.build((None, None, 8))
    rng = np.random.default_rng(0)
    for weight in made.weights:
        weight.assign(rng.normal(0.1, 0.4, size=weight.shape))
    return made


@pytest.fixture
def x():
    return np.random.default_rng(1).normal(size=(2, 6, 8)).astype("float32")


def test_first_block_returns_its_value_and_others_pass_it_on(x):
    first, second = block(), block(value_rank=3)
    hidden, value = first(x)
    np.testing.assert_allclose(value, first.mixer.value(first.mixer_residual.pre(x)), atol=1e-6)
    output, passed = second(hidden, value)
    np.testing.assert_array_equal(passed, value)
    mixed = np.asarray(hidden) + np.asarray(second.mixer(second.mixer_residual.pre(hidden), first_value=value))
    np.testing.assert_allclose(
        output, mixed + np.asarray(second.feedforward(second.feedforward_residual.pre(mixed))), atol=1e-5
    )
    assert np.abs(np.asarray(second(hidden, np.zeros_like(value))[0]) - np.asarray(output)).max() > 1e-3


def test_cache_gives_output_and_value_token_by_token(x):
    first, second = block(), block(value_rank=3)
    hidden, value = first(x)
    expected, caches = np.asarray(second(hidden, value)[0]), [each.init_cache(2, 6) for each in (first, second)]
    for index in range(6):
        (hidden, now), caches[0] = first(x[:, index : index + 1], cache=caches[0], cache_index=index)
        np.testing.assert_allclose(now, value[:, index : index + 1], atol=1e-6)
        (output, _), caches[1] = second(hidden, now, cache=caches[1], cache_index=index)
        np.testing.assert_allclose(output, expected[:, index : index + 1], atol=1e-5)


def test_recomputed_gradients_are_the_same(x):
    x, gradients = ops.convert_to_tensor(x), []
    for recompute in (False, True):
        second = block(value_rank=3, recompute=recompute)
        _, pullback = vjp(lambda x, value, second=second: ops.sum(second(x, value, training=True)[0] ** 2), x, x + 1.0)
        gradients.append(pullback(ops.ones(())))
    for plain, recomputed in zip(*gradients, strict=True):
        assert np.abs(plain).max() > 1e-3
        np.testing.assert_allclose(plain, recomputed, atol=1e-6 * np.abs(plain).max())  # Sums with cancellation.


def test_config(x):
    second = block(value_rank=3, residual="sandwich", dropout=0.25, seed=3, recompute=True)
    config = json.loads(json.dumps(keras.saving.serialize_keras_object(second)))
    again = keras.saving.deserialize_keras_object(config)
    again.build((None, None, 8))
    again.set_weights(second.get_weights())
    np.testing.assert_array_equal(again(x, x)[0], second(x, x)[0])
    assert again.get_config() == second.get_config()
