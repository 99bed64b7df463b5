"""Performers against the reference's features, and against softmax as features grow."""

from pathlib import Path

import keras
import numpy as np
import pytest

from keras_transformer.attention import (
    MultiHeadAttention,
    PerformerAttention,
    RandomFeatures,
    SoftmaxAttention,
    Visibility,
)
from keras_transformer.training import RedrawFeatures

DATA = Path(__file__).parents[1] / "data"


def visibility(length, **options):
    slots = np.arange(length, dtype="int32")
    return Visibility.from_slots(slots, slots, **options)


@pytest.mark.parametrize("kernel, suffix", [("softmax", ""), ("relu", "_relu")])
def test_reference(kernel, suffix):
    golden = np.load(DATA / "performer_favor.npz")
    query, key, value = (golden[f"inputs/{name}"].transpose(0, 2, 1, 3) for name in "qkv")
    layer = PerformerAttention(20, kernel)
    layer.build(query.shape, key.shape, value.shape)
    features = layer.linear.feature_map
    features.projection.assign(golden["params/projection_matrix"])
    for mapped, name in ((features.map_query(query), "phi_q"), (features.map_key(key), "phi_k")):
        if name + suffix != "phi_k_relu":  # It is not in the file.
            expected = golden[f"outputs/{name}{suffix}"].transpose(0, 2, 1, 3)
            np.testing.assert_allclose(mapped, expected, atol=1e-6)
    expected = golden[f"outputs/y{suffix}"].transpose(0, 2, 1, 3)
    np.testing.assert_allclose(layer(query, key, value), expected, atol=1e-6)


@pytest.mark.parametrize("kernel", ["softmax", "relu"])
@pytest.mark.parametrize("chunk_size", [3, 128])
def test_reference_of_the_causal_form(kernel, chunk_size):
    """The reference adds 1e-6 to each sum of features, and its features of keys depend on later ones (`RandomFeatures`): the
    formula is compared with both.
    """
    golden, causal = np.load(DATA / "performer_favor.npz"), np.load(DATA / "performer_causal.npz")
    query, key, value = (golden[f"inputs/{name}"].transpose(0, 2, 1, 3) for name in "qkv")
    layer = PerformerAttention(20, kernel, chunk_size)
    layer.build(query.shape, key.shape, value.shape)
    features = layer.linear.feature_map
    features.projection.assign(golden["params/projection_matrix"])
    found = layer(query, key, value, visibility=visibility(12, causal=True))
    phi_query = np.asarray(features.map_query(query), "float64")

    def formula(phi_key, epsilon):
        phi_key = np.asarray(phi_key, "float64")
        sums = np.cumsum(phi_key[..., None] * value[..., None, :], axis=1)
        totals = np.cumsum(phi_key, axis=1) + epsilon
        return (
            np.einsum("btnm,btnmh->btnh", phi_query, sums) / np.einsum("btnm,btnm->btn", phi_query, totals)[..., None]
        )

    expected = causal[kernel].transpose(0, 2, 1, 3)
    np.testing.assert_allclose(formula(features.map_key(key), 1e-6), expected, atol=1e-5)
    np.testing.assert_allclose(found, formula(features.map_key(key, causal=True), 0.0), atol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
def test_error_against_softmax_falls_as_features_grow(causal):
    """By half for four times the features, within what chance allows."""
    query, key, value = np.random.default_rng(0).normal(size=(3, 2, 48, 2, 16)).astype("float32") * [[[[[0.5]]]]] * 1
    query, key, value = (x.astype("float32") for x in (query, key, value))
    visible = visibility(48, causal=causal)
    exact = np.asarray(SoftmaxAttention()(query, key, value, visibility=visible))
    errors = []
    for num_features in (64, 256, 1024, 4096):
        draws = [PerformerAttention(num_features, seed=seed) for seed in range(4)]
        outputs = np.stack([layer(query, key, value, visibility=visible) for layer in draws])
        errors.append(np.sqrt(np.mean((outputs - exact) ** 2) / np.mean(exact**2)))
    assert errors[0] > errors[1] > errors[2] > errors[3]
    assert errors[3] < errors[0] / 4  # 1 / 8 is expected.
    assert errors[3] < 0.1


def test_features_are_orthogonal_and_as_long_as_normal_ones():
    features = RandomFeatures(64, seed=0)
    features.build((1, 1, 1, 16))
    w = np.asarray(features.projection)
    for block in np.split(w, 4):
        products = block @ block.T
        np.testing.assert_allclose(products - np.diag(np.diag(products)), 0, atol=1e-4)
    # A chi-squared variable with 16 degrees of freedom has mean 16; the mean of 64 has a deviation of 0.7.
    assert abs(np.mean(np.sum(w**2, axis=1)) - 16) < 3
    assert len(np.unique(np.sum(w**2, axis=1).round(3))) > 60


def test_padding_has_no_part_in_the_stabilizer():
    """Padded keys of any size, at lengths whose exponentials would overflow."""
    query, key, value = np.random.default_rng(0).normal(size=(3, 1, 6, 2, 4)).astype("float32")
    layer = PerformerAttention(16, seed=0)
    mask = np.arange(6)[None] < 4
    expected = layer(query, key[:, :4], value[:, :4])
    key[:, 4:] = 1e4
    for causal in (False, True):
        output = np.asarray(layer(query, key, value, visibility=visibility(6, key_mask=mask, causal=causal)))
        assert np.all(np.isfinite(output))
        if not causal:
            np.testing.assert_allclose(output, expected, atol=1e-6)


def test_redraw_while_training():
    inputs = keras.Input((5, 8))
    attention = MultiHeadAttention(2, 4, mechanism=PerformerAttention(6, seed=0))
    model = keras.Model(inputs, attention(inputs, inputs))
    model.compile("sgd", "mse")
    projection = attention.mechanism.linear.feature_map.projection
    x = np.zeros((4, 5, 8), "float32")
    draws = []
    watch = keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: draws.append(np.asarray(projection)))
    first = np.asarray(projection)
    model.fit(x, x, batch_size=1, epochs=2, verbose=0, callbacks=[RedrawFeatures(every_steps=5), watch])
    np.testing.assert_array_equal(draws[0], first)  # Four steps.
    assert np.abs(draws[1] - first).max() > 0.1  # Eight.
    np.testing.assert_array_equal(np.asarray(projection), draws[1])
    plain = keras.Sequential([keras.layers.Dense(8)])
    plain.compile("sgd", "mse")
    with pytest.raises(ValueError, match="PerformerAttention"):
        plain.fit(x, x, verbose=0, callbacks=[RedrawFeatures()])
