"""The objects of images as arrays, for training."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from keras import ops

from keras_transformer.utils.types import ArrayLike
from keras_transformer.vision.detection.boxes import convert_boxes


def box_targets(
    boxes: Sequence[ArrayLike],
    labels: Sequence[ArrayLike],
    sizes: ArrayLike,
    *,
    box_format: str = "xyxy",
    max_objects: int | None = None,
) -> dict[str, np.ndarray]:
    """Objects of images of any number, as the arrays that `training.DetectionLoss` takes.

    Boxes become shares of the image, which resizing does not change; cropping and padding do.

    Args:
        boxes: list of float arrays `(n, 4)`, one for each image, in pixels.
        labels: list of integer arrays `(n,)`.
        sizes: `(images, 2)`, or one pair for all: height and width of each image, in pixels.
        box_format: a key of `BOX_FORMATS`: "xyxy", "yxyx", "cxcywh", or "xywh" as in COCO's files.
        max_objects: int >= 1. M: rows for objects; objects beyond it are left out. None for the largest number of an image.

    Returns:
        dict of "labels", int32 `(images, M)`, -1 in rows without an object, and "boxes", float32 `(images, M, 4)`: center,
        width and height.

    Raises:
        ValueError: numbers of boxes and labels differ; an unknown format.

    Example:

    >>> targets = box_targets([[[10, 20, 30, 60]], []], [[7], []], sizes=(100, 200))
    >>> targets["labels"].tolist(), (100 * targets["boxes"][0]).round().tolist()
    ([[7], [-1]], [[10.0, 40.0, 10.0, 40.0]])
    """
    counts = [(len(each), len(classes)) for each, classes in zip(boxes, labels, strict=True)]
    for index, (number, classes) in enumerate(counts):
        if number != classes:
            raise ValueError(f"Image {index} has {number} boxes but {classes} labels.")
    rows = max(1, max((number for number, _ in counts), default=1)) if max_objects is None else max_objects
    targets = {
        "labels": np.full((len(counts), rows), -1, "int32"),
        "boxes": np.zeros((len(counts), rows, 4), "float32"),
    }
    for index, (height, width) in enumerate(np.broadcast_to(np.asarray(sizes, "float32"), (len(counts), 2))):
        count = min(counts[index][0], rows)
        centers = convert_boxes(np.reshape(boxes[index], (-1, 4)).astype("float32"), box_format, "cxcywh")
        scale = np.array([width, height, width, height], "float32")
        targets["boxes"][index, :count] = ops.convert_to_numpy(centers)[:count] / scale
        targets["labels"][index, :count] = np.asarray(labels[index], "int32")[:count]
    return targets
