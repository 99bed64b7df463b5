"""Learned positions on a page."""

import numpy as np
import pytest

from keras_transformer import positions


def test_six_vectors_are_added():
    layer = positions.BoxPosition(10)
    x = np.random.default_rng(0).normal(size=(1, 2, 3)).astype("float32")
    boxes = np.array([[[1, 2, 5, 9], [3, 3, 3, 3]]])
    found = np.asarray(layer(x, boxes=boxes))
    tables = {weight.name: np.asarray(weight) for weight in layer.weights}
    for token, (left, top, right, bottom) in enumerate(boxes[0]):
        expected = x[0, token] + tables["x"][left] + tables["y"][top] + tables["x"][right] + tables["y"][bottom]
        expected = expected + tables["height"][bottom - top] + tables["width"][right - left]
        np.testing.assert_allclose(found[0, token], expected, atol=1e-6)


def test_a_box_that_ends_before_it_begins_has_no_height_and_no_width():
    layer = positions.BoxPosition(10)
    x = np.zeros((1, 1, 3), "float32")
    backwards, flat = (np.asarray(layer(x, boxes=np.array([[box]]))) for box in ([5, 9, 1, 2], [1, 2, 5, 9]))
    tables = {weight.name: np.asarray(weight) for weight in layer.weights}
    ends = tables["height"][7] + tables["width"][4] - tables["height"][0] - tables["width"][0]
    np.testing.assert_allclose(flat - backwards, ends[None, None], atol=1e-6)


def test_no_coordinates_are_refused():
    with pytest.raises(ValueError, match="num_coordinates"):
        positions.BoxPosition(0)
