"""Axial rotary positions against their formula in float64."""

import numpy as np
import pytest

from keras_transformer.attention import MultiHeadAttention
from keras_transformer.positions import AxialRotary
from keras_transformer.vision import PatchCoordinates

RANDOM = np.random.default_rng(0)


def turned(x, coordinates, wavelength):
    """`(B, T, N, H)` as complex pairs, turned by `(T, 2)` coordinates."""
    width = x.shape[-1]
    pairs = x[..., : width // 2] + 1j * x[..., width // 2 :]
    rates = 2 * np.pi * wavelength ** (-4 * np.arange(width // 4) / width)
    angles = np.concatenate([coordinates[:, :1] * rates, coordinates[:, 1:] * rates], axis=1)
    pairs = pairs * np.exp(1j * angles)[None, :, None]
    return np.concatenate([pairs.real, pairs.imag], axis=-1)


@pytest.mark.parametrize("grid", [(3, 5), 4])
def test_numbers_of_patches(grid):
    rows, columns = (grid, grid) if isinstance(grid, int) else grid
    count = rows * columns
    query, key = RANDOM.normal(size=(2, count, 3, 8)), RANDOM.normal(size=(2, 4, 1, 8))
    centers = [[2 * (p // columns + 0.5) / rows - 1, 2 * (p % columns + 0.5) / columns - 1] for p in range(count)]
    places, centers = np.array([7, 0, 3, 11]), np.array(centers)
    found = AxialRotary(grid, max_wavelength=30.0).rotate(query, key, np.arange(count), places)
    np.testing.assert_allclose(found[0], turned(query, centers, 30.0), atol=2e-5)
    np.testing.assert_allclose(found[1], turned(key, centers[places], 30.0), atol=2e-5)
    of_rows = np.stack([places, places[::-1]])
    _, found = AxialRotary(grid, max_wavelength=30.0).rotate(query, key, np.arange(count), of_rows)
    np.testing.assert_allclose(found[1], turned(key[1:], centers[places[::-1]], 30.0)[0], atol=2e-5)


def test_coordinates_of_an_image_of_any_size():
    coordinates = PatchCoordinates(patch_size=(2, 4), num_prefix_tokens=2)(np.zeros((2, 6, 20, 3), "float32"))
    assert coordinates.shape == (1, 17, 2)
    x = RANDOM.normal(size=(2, 17, 3, 8)).astype("float32")
    found, _ = AxialRotary(max_wavelength=30.0).rotate(x, x, coordinates, coordinates)
    np.testing.assert_array_equal(np.asarray(found)[:, :2], x[:, :2])  # Not rotated at all.
    numbered, _ = AxialRotary((3, 5), max_wavelength=30.0).rotate(x[:, 2:], x, np.arange(15), np.arange(17))
    np.testing.assert_allclose(np.asarray(found)[:, 2:], numbered, atol=1e-6)


def test_angles_stay_exact_in_bfloat16():
    """Layers round real inputs to bfloat16: coordinates of 63 patches would be off by up to 0.01."""
    layers = [MultiHeadAttention(1, 8, position=AxialRotary(), dtype=dtype) for dtype in ("float32", "mixed_bfloat16")]
    coordinates = PatchCoordinates(patch_size=1)(np.zeros((1, 1, 63, 1), "float32"))
    rotated = []
    for layer in layers:
        x = np.ones((1, 63, 1, 8), "float32")
        layer(np.ones((1, 63, 8), "float32"), np.ones((1, 63, 8), "float32"), positions=coordinates)
        rotated.append(np.asarray(layer.position.rotate(x, x, coordinates, coordinates)[0]))
    np.testing.assert_array_equal(*rotated)


def test_features_beyond_a_multiple_of_four_stay():
    x = RANDOM.normal(size=(1, 6, 1, 11)).astype("float32")
    found, whole = (AxialRotary(3).rotate(each, each, np.arange(6), np.arange(6))[0] for each in (x, x[..., :8]))
    np.testing.assert_array_equal(np.asarray(found)[..., 8:], x[..., 8:])
    np.testing.assert_array_equal(np.asarray(found)[..., :8], whole)


def test_what_is_refused():
    with pytest.raises(ValueError, match="grid_size"):
        AxialRotary((3, 0))
    x = np.zeros((1, 1, 1, 3))
    with pytest.raises(ValueError, match="at least 4 features. Received: 3"):
        AxialRotary().rotate(x, x, np.arange(1), np.arange(1))
