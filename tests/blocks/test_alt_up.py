"""Streams of AltUp against their equations in float64, and what differs in training."""

import numpy as np
import pytest

from keras_transformer.blocks import AltUp, StreamExpansion, StreamReduction
from keras_transformer.feedforward import GatedFeedForward, GaussianTopK
from keras_transformer.models import Gemma3n, Gemma3nStreams, Size
from keras_transformer.models.text.decoders.gemma3n import sharing_sources
from laws import randomize


def streams(seed=0):
    return np.random.default_rng(seed).normal(size=(2, 4, 3, 6)).astype("float32")


def made(**options):
    layer = AltUp(3, active=1, **options)
    layer.build((None, None, 3, 6))
    return randomize(layer, scale=0.8)


def coefficients(layer, projection, x, limit):
    scale = np.asarray(layer.router_norm.scale, "float64")
    normalized = x / np.sqrt(np.mean(x**2, -1, keepdims=True) + layer.router_norm.epsilon) * scale
    routed = np.tanh(normalized / 6 @ np.asarray(layer.router.kernel, "float64"))
    return routed @ np.clip(np.asarray(projection.kernel, "float64"), -limit, limit)


@pytest.mark.parametrize("training, limit", [(False, np.inf), (True, 0.25)])
def test_predictions_and_corrections(training, limit):
    layer, x, y = made(coefficient_limit=0.25), streams(), streams(1)[:, :, 0]
    wide, out = x.astype("float64"), y.astype("float64")
    mixing = coefficients(layer, layer.prediction, wide[:, :, 1], limit).reshape(2, 4, 3, 3)
    predicted = wide + np.einsum("btij,btjd->btid", mixing, wide)
    np.testing.assert_allclose(layer.predict(x, training), predicted, atol=1e-5)
    factors = 1 + coefficients(layer, layer.correction, out, limit)
    corrected = predicted + factors[..., None] * (out - predicted[:, :, 1])[:, :, None]
    found = layer.correct(predicted.astype("float32"), y, training)
    np.testing.assert_allclose(found, corrected, atol=1e-5)
    scaled = corrected[:, :, 1] * np.asarray(layer.output_scale)
    np.testing.assert_allclose(layer.scaled(np.asarray(found)), scaled, atol=1e-5)


def test_streams_have_the_magnitude_of_the_first():
    x = streams()[:, :, 0] * 3
    opened = np.asarray(StreamExpansion(3)(x))
    np.testing.assert_array_equal(opened[:, :, 0], x)
    size = np.sqrt(np.mean(opened**2, -1))
    np.testing.assert_allclose(size, np.tile(size[:, :, :1], 3), rtol=1e-5)
    assert np.abs(opened[:, :, 1] - opened[:, :, 2]).max() > 0.1
    joined = StreamReduction(3)
    weights = [np.eye(6), -np.eye(6)]
    joined.build((None, None, 3, 6))
    for layer, weight in zip(joined.projections, weights, strict=True):
        layer.kernel.assign(weight)
    same = np.stack([x, x * 7, x * 0.1], axis=2)
    np.testing.assert_allclose(joined(same), x / 3, atol=1e-5)


def test_about_the_wanted_share_of_a_gate_is_zero():
    gate = np.random.default_rng(0).normal(3.0, 2.0, (4, 5000)).astype("float32")
    found = np.asarray(GaussianTopK(0.8, "relu")(gate, np.full_like(gate, 2.0)))
    np.testing.assert_allclose(np.mean(found == 0, axis=1), 0.8, atol=0.02)
    cut = gate.mean(1, keepdims=True) + 0.8416212 * gate.std(1, keepdims=True)
    np.testing.assert_allclose(found, 2 * np.maximum(gate - cut, 0), atol=1e-4)
    with pytest.raises(ValueError, match="sparsity"):
        GaussianTopK(1.0)
    assert GatedFeedForward(4, GaussianTopK(0.5)).get_config()["activation"]["config"]["sparsity"] == 0.5


def test_the_blocks_whose_keys_are_shared():
    local = [True, True, False, True, True, False]
    assert sharing_sources(local, 2) == [None, None, None, None, 3, 2]
    assert sharing_sources(local, 0) == [None] * 6
    with pytest.raises(ValueError, match="of its kind"):
        sharing_sources(local, 4)


def test_a_model_caches_the_keys_of_the_blocks_that_have_them():
    from keras_transformer.models import Stepwise

    small = Gemma3nStreams(3, laurel_rank=2, layer_width=4)
    model = Gemma3n(
        Size(4, 16, 4, 24), 11, num_key_value_heads=2, num_sharing_blocks=2, window=(3, None), streams=small
    )
    cache = Stepwise(model).init_cache(1, max_length=5)
    assert sorted(cache) == [f"decoder_block_{at}_{kind}" for at in (0, 1) for kind in ("key", "value")]
