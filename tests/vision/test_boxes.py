"""Formats of boxes, their overlaps, and targets."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.vision import BOX_FORMATS, box_iou, box_targets, convert_boxes, generalized_box_iou


def array(x):
    return ops.convert_to_numpy(x)


@pytest.mark.parametrize("source", BOX_FORMATS)
@pytest.mark.parametrize("target", BOX_FORMATS)
def test_formats_convert_into_each_other(source, target):
    same = {"xyxy": [2, 3, 8, 13], "yxyx": [3, 2, 13, 8], "cxcywh": [5, 8, 6, 10], "xywh": [2, 3, 6, 10]}
    np.testing.assert_array_equal(array(convert_boxes([same[source]], source, target)), [same[target]])


def test_an_unknown_format_is_named():
    with pytest.raises(ValueError, match="xyhw"):
        convert_boxes([[0, 0, 1, 1]], "xyhw", "xyxy")


def reference(a, b):
    """Algorithm 1 of arXiv 1902.09630, in float64."""
    inside = max(0, min(a[2], b[2]) - max(a[0], b[0])) * max(0, min(a[3], b[3]) - max(a[1], b[1]))
    union = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - inside
    hull = (max(a[2], b[2]) - min(a[0], b[0])) * (max(a[3], b[3]) - min(a[1], b[1]))
    return inside / union, inside / union - (hull - union) / hull


def test_overlaps_are_those_of_the_paper():
    rng = np.random.default_rng(0)
    corners = rng.uniform(0, 10, (2, 6, 2, 2))
    boxes = np.concatenate([corners.min(2), corners.max(2)], -1)
    expected = np.array([[reference(a, b) for b in boxes[1]] for a in boxes[0]])
    pairs = boxes[0][:, None].astype("float32"), boxes[1][None].astype("float32")
    np.testing.assert_allclose(array(box_iou(*pairs)), expected[..., 0], atol=1e-6)
    np.testing.assert_allclose(array(generalized_box_iou(*pairs)), expected[..., 1], atol=1e-6)
    assert expected[..., 1].min() < -0.1


def test_boxes_without_area_have_finite_overlaps_and_gradients():
    point, box = np.array([1.0, 1, 1, 1], "float32"), np.array([0.0, 0, 2, 2], "float32")
    assert array(generalized_box_iou(point, point)) == 0
    assert array(generalized_box_iou(point, box)) == 0
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        x = tf.constant(point)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = generalized_box_iou(x, point)
        assert np.isfinite(tape.gradient(y, x)).all()


def test_targets_are_shares_of_the_image():
    targets = box_targets([[[2, 4, 4, 10]] * 2, []], [[5, 6], []], [(20, 10), (1, 1)], box_format="xywh", max_objects=3)
    assert targets["labels"].tolist() == [[5, 6, -1], [-1] * 3]
    np.testing.assert_allclose(targets["boxes"][0, 1], [0.4, 0.45, 0.4, 0.5], atol=1e-7)
    assert not targets["boxes"][1].any()
    assert box_targets([[[0, 0, 1, 1]] * 2], [[3, 4]], (2, 2), max_objects=1)["labels"].tolist() == [[3]]
    with pytest.raises(ValueError, match="Image 1 has 1 boxes but 2 labels"):
        box_targets([[], [[0, 0, 1, 1]]], [[], [1, 2]], (2, 2))
