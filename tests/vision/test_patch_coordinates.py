"""Coordinates of patches: their values, at sizes that are not known before, and their augmentation in training."""

import keras
import numpy as np
import pytest

from keras_transformer.vision import PatchCoordinates

STEPS = 2**24
OPTIONS = {"patch_size": (2, 3), "num_prefix_tokens": 2, "shift": 0.5, "jitter": 1.5, "rescale": 2.0, "seed": 7}


def coordinates(layer, height=4, width=9, **options):
    return np.asarray(layer(np.zeros((2, height, width, 3), "float32"), **options)) / STEPS


def test_rows_come_first_and_prefix_tokens_are_in_the_center():
    found = coordinates(PatchCoordinates((2, 3), num_prefix_tokens=1))
    expected = [[0, 0], *([y, x] for y in (-0.5, 0.5) for x in (-2 / 3, 0, 2 / 3))]
    np.testing.assert_allclose(found, [expected], atol=1e-7)


def test_sizes_that_are_not_known():
    images = keras.Input((None, None, 3))
    output = PatchCoordinates((2, 3), num_prefix_tokens=1)(images)
    assert (output.shape, output.dtype) == ((1, None, 2), "int32")
    model = keras.Model(images, output)
    for size in ((4, 9), (6, 3), (5, 11)):  # Of the last, a row and two columns of pixels do not count.
        x = np.zeros((1, *size, 3), "float32")
        np.testing.assert_array_equal(model(x), PatchCoordinates((2, 3), num_prefix_tokens=1)(x))
    assert PatchCoordinates((2, 3), 1).compute_output_shape((None, 4, 9, 3)) == (1, 7, 2)


def test_augmentation_in_training():
    plain = coordinates(PatchCoordinates((2, 3)))
    for name, value in (("shift", 0.5), ("jitter", 1.5), ("rescale", 2.0)):
        layer = PatchCoordinates((2, 3), num_prefix_tokens=2, seed=1, **{name: value})
        np.testing.assert_array_equal(coordinates(layer)[:, 2:], plain)
        draws = []
        for _ in range(200):
            found = coordinates(layer, training=True)
            assert not found[:, :2].any()
            changed = found[:, 2:] - plain if name == "shift" else found[:, 2:][plain != 0] / plain[plain != 0]
            changed = changed.reshape(-1, 2) if name == "shift" else changed
            draws.append(changed)
        draws = np.array(draws)
        low, high = (-value, value) if name == "shift" else (1 / value, value)
        assert low <= draws.min() + 1e-6
        assert draws.max() <= high + 1e-6
        span = draws if name == "shift" else np.log(draws)
        assert np.ptp(span) > 0.9 * np.ptp(np.array([low, high]) if name == "shift" else np.log([low, high]))
        same_for_both_axes = np.allclose(draws[..., 0], draws[..., 1], atol=1e-5)
        assert same_for_both_axes == (name == "rescale")


def test_config_and_draws_come_back():
    layer = PatchCoordinates(**OPTIONS)
    config = layer.get_config()
    defaults = PatchCoordinates().get_config()
    assert all(config[name] == value != defaults[name] for name, value in OPTIONS.items())
    again = PatchCoordinates.from_config(config)
    for _ in range(2):
        np.testing.assert_array_equal(coordinates(layer, training=True), coordinates(again, training=True))


@pytest.mark.parametrize(
    "options", [{"shift": -0.1}, {"jitter": 0.5}, {"rescale": 5.0}, {"rescale": 0.0}, {"num_prefix_tokens": -1}]
)
def test_what_is_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        PatchCoordinates(**options)
