"""Layers of patches in windows, and of the tokens of images of any size in a text."""

import numpy as np
import pytest

from keras_transformer.vision import ImagePositions, UnrollWindows, WindowCoordinates

IMAGE = 9


def test_patches_come_window_by_window_and_in_them_group_by_group():
    # 5 x 4 groups of 2 x 2 patches, in windows of 3 x 3 groups.
    positions, mask = WindowCoordinates(3, 2)(np.zeros((1, 5, 36, 1)), np.array([[10, 8]]))
    expected = []
    for window in np.ndindex(2, 2):
        for group in np.ndindex(3, 3):
            for patch in np.ndindex(2, 2):
                expected.append([(window[axis] * 3 + group[axis]) * 2 + patch[axis] for axis in (0, 1)])
    expected = np.array(expected)
    np.testing.assert_array_equal(np.asarray(positions)[0, :144], expected)
    is_there = (expected < [10, 8]).all(axis=1)
    assert is_there.sum() == 80
    np.testing.assert_array_equal(np.asarray(mask)[0, :144], is_there)
    assert not np.asarray(mask)[0, 144:].any()


def test_tokens_of_several_images_are_unrolled_row_by_row():
    grids = np.array([[[4, 3], [0, 0], [2, 5]], [[1, 1], [3, 1], [0, 0]]])
    tokens = np.zeros((2, 3, 16, 1), "float32")
    expected = np.zeros((2, 48), "float32")
    for row, images in enumerate(grids):
        number = 0
        for image, (rows, columns) in enumerate(images):
            across = -(-columns // 2)
            for y, x in np.ndindex(rows, columns):
                number += 1
                tokens[row, image, (y // 2 * across + x // 2) * 4 + y % 2 * 2 + x % 2] = number
                expected[row, number - 1] = number
    found = np.asarray(UnrollWindows(2)(tokens, grids))
    np.testing.assert_array_equal(found.reshape(2, 48), expected)


def written(parts):
    """Tokens and positions by the rule: one after another, and after an image by its longer side."""
    token_ids, positions, start = [], [], 0
    for part in parts:
        if isinstance(part, tuple):
            token_ids += [IMAGE] * (part[0] * part[1])
            positions += [[start, start + row, start + column] for row, column in np.ndindex(*part)]
            start += max(part)
        else:
            token_ids += list(range(part))
            positions += [[start + index] * 3 for index in range(part)]
            start += part
    return token_ids, positions


@pytest.mark.parametrize("parts", [(2, (3, 2), (1, 4), 3), ((2, 2), 4), (5,)], ids=str)
def test_positions_whole_and_in_chunks(parts):
    token_ids, expected = written(parts)
    grid = np.array([[part for part in parts if isinstance(part, tuple)] + [(0, 0)]])
    layer = ImagePositions(IMAGE)
    np.testing.assert_array_equal(np.asarray(layer(np.array([token_ids]), encoder_output=grid))[0], expected)
    cache = {**layer.init_cache(1, len(token_ids)), **layer.memory_cache(grid)}
    found = []
    for start in range(0, len(token_ids), 3):
        chunk = np.array([token_ids[start : start + 3]])
        positions, cache = layer(chunk, cache=cache, cache_index=start)
        found += np.asarray(positions)[0].tolist()
    assert found == expected


def test_a_cache_can_go_back():
    layer, grid = ImagePositions(IMAGE), np.array([[[2, 2], [1, 3]]])
    cache = {**layer.init_cache(1, 9), **layer.memory_cache(grid)}
    _, cache = layer(np.array([[IMAGE] * 7]), cache=cache, cache_index=0)
    token_ids, expected = written([(2, 2), 2, (1, 3)])
    positions, _ = layer(np.array([token_ids[4:]]), cache=cache, cache_index=4)
    assert np.asarray(positions)[0].tolist() == expected[4:]
    with pytest.raises(ValueError, match="grid of the images"):
        layer(np.array([[1]]))
