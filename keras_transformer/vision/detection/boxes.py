"""Bounding boxes: formats, areas and overlaps."""

from __future__ import annotations

import keras
from keras import ops

from keras_transformer.utils.serialization import choice
from keras_transformer.utils.types import Tensor


def _of_corners(boxes):
    return boxes


def _of_yx_corners(boxes):
    return ops.take(boxes, [1, 0, 3, 2], axis=-1)


def _to_center(boxes):
    first, last = boxes[..., :2], boxes[..., 2:]
    return ops.concatenate([(first + last) / 2, last - first], axis=-1)


def _from_center(boxes):
    center, half = boxes[..., :2], boxes[..., 2:] / 2
    return ops.concatenate([center - half, center + half], axis=-1)


def _to_size(boxes):
    return ops.concatenate([boxes[..., :2], boxes[..., 2:] - boxes[..., :2]], axis=-1)


def _from_size(boxes):
    return ops.concatenate([boxes[..., :2], boxes[..., :2] + boxes[..., 2:]], axis=-1)


# Functions to and from the corners `(x_min, y_min, x_max, y_max)`.
BOX_FORMATS = {
    "xyxy": (_of_corners, _of_corners),
    "yxyx": (_of_yx_corners, _of_yx_corners),
    "cxcywh": (_from_center, _to_center),
    "xywh": (_from_size, _to_size),
}


def convert_boxes(boxes: Tensor, source: str, target: str) -> Tensor:
    """Boxes in another format.

    Args:
        boxes: float `(..., 4)`: any array, in pixels or as shares of the image.
        source, target: "xyxy": left, top, right and bottom; "yxyx": top, left, bottom and right, as TensorFlow and MediaPipe
            have it; "cxcywh": center, width and height, as DETR; "xywh": left, top, width and height, as COCO's files.

    Returns:
        `(..., 4)`.

    Raises:
        ValueError: an unknown format.

    Example:

    >>> import numpy as np
    >>> np.asarray(convert_boxes([[2.0, 4.0, 6.0, 12.0]], "xyxy", "cxcywh")).tolist()
    [[4.0, 8.0, 4.0, 8.0]]
    """
    read, _ = choice(source, BOX_FORMATS, argument="source")
    _, write = choice(target, BOX_FORMATS, argument="target")
    return write(read(_floats(boxes)))


def box_iou(boxes: Tensor, others: Tensor) -> Tensor:
    """Intersection over union of boxes.

    Args:
        boxes, others: float `(..., 4)`, "xyxy", whose leading axes broadcast: `(B, M, 1, 4)` and `(B, 1, Q, 4)` for all
            pairs.

    Returns:
        `(...)`, from 0 to 1; 0 for two boxes without area.

    Example:

    >>> round(float(box_iou([0.0, 0.0, 2.0, 2.0], [1.0, 0.0, 3.0, 2.0])), 4)
    0.3333
    """
    intersection, union, _ = _overlap(_floats(boxes), _floats(others))
    return _ratio(intersection, union)


def generalized_box_iou(boxes: Tensor, others: Tensor) -> Tensor:
    """Generalized intersection over union of boxes: `IoU - (C - U) / C`, with the area C of the smallest box around both.

    Args:
        boxes, others: float `(..., 4)`, "xyxy", whose leading axes broadcast.

    Returns:
        `(...)`, from -1 to 1: 1 for equal boxes, negative for boxes that are far apart. Where an area is zero, its quotient
        is 0.

    Example:

    >>> float(generalized_box_iou([0.0, 0.0, 1.0, 1.0], [3.0, 0.0, 4.0, 1.0]))
    -0.5

    Reference: Rezatofighi et al., arXiv 1902.09630, algorithm 1.
    """
    intersection, union, hull = _overlap(_floats(boxes), _floats(others))
    return _ratio(intersection, union) - _ratio(hull - union, hull)


def _floats(boxes):
    boxes = ops.convert_to_tensor(boxes)
    is_float = "float" in keras.backend.standardize_dtype(boxes.dtype)
    return boxes if is_float else ops.cast(boxes, keras.config.floatx())


def _overlap(boxes, others):
    """Areas of intersection, of union and of the smallest box around both."""
    intersection = _area(ops.maximum(boxes[..., :2], others[..., :2]), ops.minimum(boxes[..., 2:], others[..., 2:]))
    hull = _area(ops.minimum(boxes[..., :2], others[..., :2]), ops.maximum(boxes[..., 2:], others[..., 2:]))
    union = _area(boxes[..., :2], boxes[..., 2:]) + _area(others[..., :2], others[..., 2:]) - intersection
    return intersection, union, hull


def _area(first, last):
    sides = ops.maximum(last - first, 0)
    return sides[..., 0] * sides[..., 1]


def _ratio(numerator, denominator):
    """A quotient that is 0, with a gradient of 0, where the denominator is."""
    is_positive = denominator > 0
    return ops.where(is_positive, numerator / ops.where(is_positive, denominator, 1), 0)
