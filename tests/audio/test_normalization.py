"""Normalized spectrograms against the formula in float64, and what they no longer tell."""

import keras
import numpy as np
import pytest

from keras_transformer import load_model
from keras_transformer.audio import SoundNormalization


def spectrograms(count=3, frames=30, bins=8):
    """Logarithms of sounds with silence before and behind."""
    rng = np.random.default_rng(0)
    x = rng.normal(-1, 0.7, (count, frames, bins))
    x[:, :5] = x[:, -9:] = -8
    return x.astype("float32")


def formula(x, active_range, limit, per_bin):
    x = x.astype("float64")
    result = np.empty_like(x)
    for row, found in zip(x, result, strict=True):
        loudness = [frame.mean() for frame in row]
        weights = np.array([max(0, 1 - (max(loudness) - each) / active_range) for each in loudness])
        means = np.average(row, axis=0, weights=weights)
        centered = row - (means if per_bin else means.mean())
        found[:] = np.maximum(centered / np.sqrt(np.average((centered**2).mean(axis=1), weights=weights)), -limit)
    return result


@pytest.mark.parametrize("per_bin", [False, True])
@pytest.mark.parametrize("settings", [(4.0, 3.0), (1.0, 1.5)])
def test_formula(settings, per_bin):
    x = spectrograms()
    layer = SoundNormalization(*settings, per_bin=per_bin)
    np.testing.assert_allclose(layer(x), formula(x, *settings, per_bin), atol=1e-5)


def test_neither_loudness_nor_contrast_nor_silence_is_seen():
    layer, x = SoundNormalization(), spectrograms()
    plain = np.asarray(layer(x))
    np.testing.assert_allclose(layer(x + 1.7), plain, atol=1e-5)
    longer = np.concatenate([x, np.full((3, 50, 8), -9.5, "float32")], axis=1)
    np.testing.assert_allclose(layer(longer)[:, :30], plain, atol=1e-5)
    np.testing.assert_array_equal(np.asarray(layer(longer))[:, 30:], -3)
    wider = SoundNormalization(active_range=8.0)
    np.testing.assert_allclose(wider(2 * x), plain, atol=1e-5)


def test_a_color_is_seen_unless_each_bin_has_its_mean():
    color, x = np.linspace(-0.5, 0.5, 8, dtype="float32"), spectrograms()
    x = np.maximum(x, -3)  # No frame is below the limits.
    alone = SoundNormalization(limit=100.0, per_bin=True)
    np.testing.assert_allclose(alone(x + color), alone(x), atol=1e-5)
    together = SoundNormalization(limit=100.0)
    assert np.abs(together(x + color) - together(x)).max() > 0.3


def test_nothing_stays_nothing():
    np.testing.assert_array_equal(SoundNormalization()(np.full((2, 4, 3), -10.0, "float32")), 0)


def test_saving_and_mixed_precision(tmp_path):
    inputs, x = keras.Input((None, 8)), spectrograms()
    model = keras.Model(inputs, SoundNormalization(2.5, 1.25, per_bin=True, dtype="mixed_bfloat16")(inputs))
    model.save(tmp_path / "model.keras")
    loaded = load_model(tmp_path / "model.keras")
    assert (loaded.layers[1].active_range, loaded.layers[1].limit, loaded.layers[1].per_bin) == (2.5, 1.25, True)
    np.testing.assert_array_equal(loaded.predict(x, verbose=0), model.predict(x, verbose=0))
    # Sums over frames are in float32: only what comes in and what goes out is rounded.
    rounded = np.asarray(keras.ops.cast(keras.ops.cast(x, "bfloat16"), "float32"))
    np.testing.assert_allclose(
        keras.ops.cast(model(x), "float32"), formula(rounded, 2.5, 1.25, True), rtol=2**-8, atol=1e-4
    )


@pytest.mark.parametrize("options", [{"active_range": 0}, {"limit": -1.0}, {"limit": "low"}])
def test_limits_that_cannot_be(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        SoundNormalization(**options)
