"""Random sounds and masked spectrograms."""

import numpy as np
import pytest

from keras_transformer.audio import FilterAugment, RandomSound, SpecAugment, VocalTractPerturbation


def tone(count=3, length=4000):
    return np.repeat(np.sin(np.arange(length) * 0.1)[None].astype("float32"), count, axis=0)


def crossings(sound):
    return (np.diff(np.sign(sound), axis=1) != 0).sum(axis=1)


def test_nothing_changes_where_it_does_not_train():
    sound = tone()
    layer = RandomSound(speed=0.3, shift=0.3, gain=1.0, noise=0.5)
    np.testing.assert_array_equal(layer(sound, training=False), sound)
    for layer in (SpecAugment(), VocalTractPerturbation(0.5), FilterAugment(3.0)):
        np.testing.assert_array_equal(layer(sound[:, :, None], training=False), sound[:, :, None])


def test_another_speed_is_another_pitch():
    sound = tone(64)
    found = np.asarray(RandomSound(speed=0.2, seed=0)(sound, training=True))
    ratio = crossings(found) / crossings(sound)
    # What is played faster ends before the recording does.
    assert 0.79 < ratio.min() < 0.9
    silence = (found == 0).mean(axis=1)
    assert silence.max() > 0.1
    assert silence.max() < 1 - 1 / 1.2 + 0.01
    assert len(set(crossings(found))) > 12


def test_a_shift_moves_the_sound_and_leaves_silence():
    sound = tone(64)
    found = np.asarray(RandomSound(shift=0.25, seed=1)(sound, training=True))
    loud = [np.flatnonzero(row) for row in found]
    lengths = np.array([places[-1] - places[0] + 1 for places in loud])
    assert 2995 <= lengths.min() < 3300
    assert (found[:, 0] == 0).any()
    assert (found[:, -1] == 0).any()
    pitches = crossings(found) / lengths
    np.testing.assert_allclose(pitches, crossings(sound)[0] / 4000, rtol=0.03)


def test_gain_and_noise_stay_within_their_limits():
    sound = tone(64)
    peak = np.abs(np.asarray(RandomSound(gain=0.5, seed=2)(sound, training=True))).max(axis=1)
    assert np.exp(-0.5) * 0.99 < peak.min() < 0.7
    assert 1.4 < peak.max() < np.exp(0.5) * 1.01
    noise = np.asarray(RandomSound(noise=0.1, seed=3)(sound, training=True)) - sound
    deviation = noise.std(axis=1)
    assert deviation.min() < 0.02
    assert 0.08 < deviation.max() < 0.11


def test_masks_are_whole_bands_and_stretches():
    spectrogram = np.random.default_rng(0).normal(size=(16, 30, 20)).astype("float32")
    layer = SpecAugment(num_frequency_masks=1, frequency_mask=6, num_time_masks=1, time_mask=9, seed=0)
    found = np.asarray(layer(spectrogram, training=True))
    changed = found != spectrogram
    bands, stretches = changed.all(axis=1), changed.all(axis=2)
    np.testing.assert_array_equal(changed, bands[:, None] | stretches[:, :, None])
    assert 3 < bands.sum(axis=1).max() <= 6
    assert 5 < stretches.sum(axis=1).max() <= 9
    mean = spectrogram.mean(axis=(1, 2))
    np.testing.assert_allclose(found[changed], np.repeat(mean, changed.sum(axis=(1, 2))), atol=1e-6)
    for covered in (*bands, *stretches):
        assert np.ptp(np.flatnonzero(covered)) == covered.sum() - 1 if covered.any() else True


def test_voices_are_stretched_along_the_frequencies():
    """A spectrogram that is its own bin shows where each value came from; any other one must come from there too."""
    bins, rng = np.arange(20.0), np.random.default_rng(0)
    ramp = np.repeat(bins[None, None], 7, axis=1).astype("float32")
    some = rng.normal(size=(1, 7, 20)).astype("float32")
    layer = VocalTractPerturbation(0.2, seed=0)
    places = np.asarray(layer(np.repeat(ramp, 64, axis=0), training=True))
    factors = places[:, 0, 1]
    np.testing.assert_allclose(places, np.minimum(factors[:, None, None] * bins, 19).repeat(7, axis=1), atol=1e-4)
    assert 0.8 <= factors.min() < 0.83
    assert 1.17 < factors.max() <= 1.2
    again = VocalTractPerturbation(0.2, seed=0)
    found = np.asarray(again(np.repeat(some, 64, axis=0), training=True))
    expected = [[np.interp(row, bins, frame) for frame in some[0]] for row in places[:, 0]]
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_filters_are_straight_between_their_points():
    spectrogram = np.random.default_rng(0).normal(size=(64, 7, 9)).astype("float32")
    found = np.asarray(FilterAugment(0.5, num_points=3, seed=0)(spectrogram, training=True)) - spectrogram
    gains = found[:, 0]
    np.testing.assert_allclose(found, gains[:, None].repeat(7, axis=1), atol=1e-6)
    points = gains[:, [0, 4, 8]]
    np.testing.assert_allclose(gains, [np.interp(range(9), [0, 4, 8], row) for row in points], atol=1e-6)
    assert points.min(axis=0).max() < -0.4
    assert points.max(axis=0).min() > 0.4
    assert np.abs(points).max() <= 0.5
    assert np.abs(np.corrcoef(points.T)[np.triu_indices(3, 1)]).max() < 0.3


@pytest.mark.parametrize("options", [{"speed": 1.0}, {"shift": -0.1}, {"gain": "loud"}, {"noise": float("inf")}])
def test_sounds_that_cannot_be(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        RandomSound(**options)


@pytest.mark.parametrize("options", [{"num_time_masks": -1}, {"time_mask": 0}, {"frequency_mask": 1.5}])
def test_masks_that_cannot_be(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        SpecAugment(**options)


@pytest.mark.parametrize("options", [{"gain": -1.0}, {"gain": float("inf")}, {"num_points": 1}])
def test_filters_that_cannot_be(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        FilterAugment(**options)


def test_a_throat_that_cannot_be():
    with pytest.raises(ValueError, match="warp"):
        VocalTractPerturbation(1.0)


@pytest.mark.parametrize("layer", [FilterAugment(0.25, 4, seed=3), VocalTractPerturbation(0.3, seed=3)])
def test_what_was_set_is_kept(layer):
    again = type(layer).from_config(layer.get_config())
    spectrogram = np.random.default_rng(0).normal(size=(2, 5, 6)).astype("float32")
    np.testing.assert_array_equal(again(spectrogram, training=True), layer(spectrogram, training=True))
    assert again.get_config() == layer.get_config()
