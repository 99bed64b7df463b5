import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.data import Augmentation

RANDOM = np.random.default_rng(0).uniform(0, 255, (64, 6, 5, 3)).astype("float32")
LABELS = np.eye(4, dtype="float32")[np.arange(64) % 4]


def apply(augmentation, images=RANDOM, labels=LABELS, seed=(1, 2)):
    images, labels = augmentation(tf.constant(images), tf.constant(labels), tf.constant(seed, tf.int64))
    return images.numpy(), labels.numpy()


ALL = Augmentation(shift=1, flip=True, warp=0.1, color=0.3, cutout=2, mixup=0.4)


def test_same_seed_same_images_other_seed_others():
    first, second, other = apply(ALL), apply(ALL), apply(ALL, seed=(3, 4))
    np.testing.assert_array_equal(first[0], second[0])
    np.testing.assert_array_equal(first[1], second[1])
    assert np.abs(first[0] - other[0]).max() > 1
    assert np.abs(first[1] - other[1]).max() > 0.01


def test_nothing_asked_nothing_done():
    images, labels = apply(Augmentation())
    np.testing.assert_array_equal(images, RANDOM)
    np.testing.assert_array_equal(labels, LABELS)


def test_shift_moves_by_whole_pixels_in_all_directions():
    images = np.zeros((400, 7, 7, 1), "float32")
    images[:, 3, 3] = 100
    shifted, _ = apply(Augmentation(shift=2), images, LABELS[:1].repeat(400, 0))
    places = np.argwhere(shifted[..., 0] == 100)
    assert len(places) == 400  # each image keeps its one pixel
    assert sorted(set(places[:, 1])) == [1, 2, 3, 4, 5]
    assert sorted(set(places[:, 2])) == [1, 2, 3, 4, 5]
    assert len({tuple(place) for place in places[:, 1:]}) == 25  # rows and columns independent of each other


def test_shift_lets_black_in():
    shifted, _ = apply(Augmentation(shift=3), np.full((64, 6, 6, 1), 50, "float32"))
    assert set(np.unique(shifted)) == {0, 50}


def test_flip_mirrors_about_half_of_the_images():
    flipped, labels = apply(Augmentation(flip=True))
    mirrored = np.array([np.array_equal(after, before[:, ::-1]) for after, before in zip(flipped, RANDOM, strict=True)])
    same = np.array([np.array_equal(after, before) for after, before in zip(flipped, RANDOM, strict=True)])
    assert (mirrored ^ same).all()
    assert 16 < mirrored.sum() < 48
    np.testing.assert_array_equal(labels, LABELS)


def test_warp_keeps_the_center_and_moves_the_rest():
    across = np.arange(9, dtype="float32")
    ramp = np.broadcast_to(100 + 10 * across[None, :, None], (64, 9, 9, 1)).astype("float32")
    warped, _ = apply(Augmentation(warp=0.2), ramp)
    # On a ramp, bilinear sampling of an affine map is exact: x' - x is change * (x, y, 1) * 4, at most 0.8 at the center.
    center = (warped[:, 4, 4, 0] - 140) / 10
    assert 0.4 < np.abs(center).max() <= 0.8 + 1e-4
    slopes = (warped[:, 4, 5, 0] - warped[:, 4, 3, 0]) / 20
    assert 0.8 <= slopes.min() < 0.9
    assert 1.1 < slopes.max() <= 1.2 + 1e-4
    shears = (warped[:, 5, 4, 0] - warped[:, 3, 4, 0]) / 20
    assert -0.2 <= shears.min() < -0.1
    assert 0.1 < shears.max() <= 0.2 + 1e-4


def test_color_changes_contrast_and_channels_within_bounds():
    images = np.empty((64, 4, 4, 3), "float32")
    images[:, :, :2], images[:, :, 2:] = 80, 120  # mean 100, deviation 20
    colored, _ = apply(Augmentation(color=0.25), images)
    means = colored.mean(axis=(1, 2))
    assert 75 <= means.min() < 80
    assert 120 < means.max() <= 125
    assert np.abs(means[:, 0] - means[:, 1]).max() > 10  # each channel by itself
    deviations = colored.std(axis=(1, 2))
    assert 15 <= deviations.min() < 17
    assert 23 < deviations.max() <= 25
    np.testing.assert_allclose(deviations[:, 0], deviations[:, 2], rtol=1e-4)  # one contrast for all channels


def test_color_stays_within_pixels():
    colored, _ = apply(Augmentation(color=0.9))
    assert colored.min() >= 0
    assert colored.max() <= 255


def test_cutout_sets_a_square_to_the_mean():
    cut, _ = apply(Augmentation(cutout=3))
    means = RANDOM.mean(axis=(1, 2), keepdims=True)
    changed = (cut != RANDOM).all(axis=-1)
    np.testing.assert_allclose(cut[changed], np.broadcast_to(means, cut.shape)[changed], rtol=1e-5)
    sides = changed.any(axis=2).sum(axis=1), changed.any(axis=1).sum(axis=1)
    np.testing.assert_array_equal(sides[0] * sides[1], changed.sum(axis=(1, 2)))  # a rectangle
    assert set(sides[0]) == {2, 3}  # cut off at the border
    assert len({tuple(np.argwhere(each)[0]) for each in changed}) > 10


def test_mixup_blends_images_and_labels_alike():
    mixed, labels = apply(Augmentation(mixup=0.5))
    neighbors, other_labels = np.roll(RANDOM, 1, axis=0), np.roll(LABELS, 1, axis=0)
    share = (labels * other_labels).sum(axis=-1)
    assert 0 <= share.min() < 0.1
    assert 0.3 < share.max() <= 0.5
    share = share.reshape(-1, 1, 1, 1)
    np.testing.assert_allclose(mixed, (1 - share) * RANDOM + share * neighbors, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(labels.sum(axis=-1), 1, rtol=1e-6)


@pytest.mark.parametrize("name, value", [("shift", -1), ("cutout", -1), ("mixup", -0.1), ("color", 1.0), ("warp", 1.0)])
def test_refuses(name, value):
    with pytest.raises(ValueError, match=name):
        Augmentation(**{name: value})
