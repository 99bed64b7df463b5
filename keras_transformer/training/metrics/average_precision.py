"""COCO's average precision of detections."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from keras_transformer.utils.types import ArrayLike

# COCO's thresholds of overlap, levels of recall, and areas in pixels.
THRESHOLDS = np.linspace(0.5, 0.95, 10)
_RECALLS = np.linspace(0.0, 1.0, 101)
_AREAS = {"": (0.0, 1e10), "_small": (0.0, 32.0**2), "_medium": (32.0**2, 96.0**2), "_large": (96.0**2, 1e10)}
_COUNTS = (1, 10, 100)


def average_precision(
    detections: Sequence[Sequence[ArrayLike]],
    boxes: Sequence[ArrayLike],
    labels: Sequence[ArrayLike],
    crowds: Sequence[ArrayLike] | None = None,
) -> dict[str, float]:
    """COCO's average precision and recall of detections: means over classes and thresholds of overlap.

    In the order of their scores, each detection takes the object of its class and image that it overlaps most, if that is
    not taken and the intersection over union reaches the threshold. Precision is the best at any recall as high or higher,
    averaged over 101 levels of recall.

    Args:
        detections: list of `tasks.Detections`, one for each image, or of tuples of boxes `(n, 4)`, labels `(n,)` and scores
            `(n,)`. At most the best 100 of each class and image count.
        boxes: list of float arrays `(m, 4)`: the objects of each image, "xyxy", in pixels.
        labels: list of integer arrays `(m,)`.
        crowds: list of bool arrays `(m,)`, or None: objects that stand for many; what lies inside them does not count.

    Returns:
        dict of float: "ap", over thresholds of overlap 0.5, 0.55, ..., 0.95; "ap_50" and "ap_75", at one; "ap_small",
        "ap_medium" and "ap_large", of objects below 32², up to 96², and above; "ar_1", "ar_10" and "ar_100", the recall of
        the best 1, 10 and 100 detections, and "ar_small", "ar_medium" and "ar_large". NaN where there is no object.

    Raises:
        ValueError: the lists have other lengths.

    Example:

    >>> found = [([[0, 0, 10, 10], [50, 50, 60, 60]], [1, 1], [0.9, 0.8])]
    >>> scores = average_precision(found, [[[0, 0, 10, 8]]], [[1]])
    >>> round(scores["ap"], 2), scores["ap_50"]  # The overlap is 0.8: 7 of 10 thresholds.
    (0.7, 1.0)

    Reference: Lin et al., Microsoft COCO, arXiv 1405.0312, as in pycocotools, whose figures these are.
    """
    crowds = [np.zeros(len(each), bool) for each in labels] if crowds is None else crowds
    lengths = {len(detections), len(boxes), len(labels), len(crowds)}
    if len(lengths) != 1:
        raise ValueError(f"Detections and objects must be of the same images. Received: {sorted(lengths)} images")
    images = [_Image(found, *objects) for found, *objects in zip(detections, boxes, labels, crowds, strict=True)]
    classes = sorted({int(label) for image in images for label in image.labels})
    scores = {}
    for suffix, area in _AREAS.items():
        tables = [_evaluate([image.of_class(each) for image in images], area) for each in classes]
        precision, recall = (np.array([table[part] for table in tables]) for part in (0, 1))
        scores[f"ap{suffix}"] = _mean(precision)
        if suffix:
            scores[f"ar{suffix}"] = _mean(recall[..., -1:])
            continue
        scores |= {f"ap_{round(100 * THRESHOLDS[index])}": _mean(precision[:, index : index + 1]) for index in (0, 5)}
        scores |= {f"ar_{count}": _mean(recall[..., index : index + 1]) for index, count in enumerate(_COUNTS)}
    return scores


def _mean(values: np.ndarray) -> float:
    """The mean over the classes that have objects; NaN for none."""
    values = values.reshape(len(values), -1) if values.size else values
    values = values[~np.isnan(values)]
    return float(values.mean()) if values.size else float("nan")


class _Image:
    """The detections and the objects of an image."""

    def __init__(self, found: Sequence[ArrayLike], boxes: ArrayLike, labels: ArrayLike, crowds: ArrayLike) -> None:
        self.found = [np.asarray(each, "float64") for each in found]
        self.found[0] = self.found[0].reshape(-1, 4)
        self.boxes = np.asarray(boxes, "float64").reshape(-1, 4)
        self.labels = np.asarray(labels, "int64").reshape(-1)
        self.crowds = np.asarray(crowds, bool).reshape(-1)

    def of_class(self, label: int) -> tuple[np.ndarray, ...]:
        """Boxes and scores of detections, the surest first, and boxes and crowds of objects."""
        boxes, labels, scores = self.found
        chosen = np.flatnonzero(labels == label)
        chosen = chosen[np.argsort(-scores[chosen], kind="stable")][: _COUNTS[-1]]
        own = self.labels == label
        return boxes[chosen], scores[chosen], self.boxes[own], self.crowds[own]


def _evaluate(images: Sequence[tuple[np.ndarray, ...]], area: tuple[float, float]) -> tuple[np.ndarray, np.ndarray]:
    """Precision `(thresholds,)` and recalls `(thresholds, counts)` of one class; NaN without objects."""
    parts = [_match(boxes, scores, objects, crowds, area) for boxes, scores, objects, crowds in images]
    number = sum(part[3] for part in parts)
    if not number:
        return np.full(len(THRESHOLDS), np.nan), np.full((len(THRESHOLDS), len(_COUNTS)), np.nan)
    recalls = np.stack([_sum(parts, count) / number for count in _COUNTS], axis=1)
    order = np.argsort(-np.concatenate([part[0] for part in parts]), kind="mergesort")
    taken, ignored = (np.concatenate([part[index] for part in parts], axis=1)[:, order] for index in (1, 2))
    return np.array([_area_under(*row, number) for row in zip(taken, ignored, strict=True)]), recalls


def _sum(parts, count):
    """Objects found by the first detections of every image, for each threshold."""
    return sum(np.sum(taken[:, :count] & ~ignored[:, :count], axis=1) for _, taken, ignored, _ in parts)


def _area_under(taken: np.ndarray, ignored: np.ndarray, number: int) -> float:
    """The mean of the interpolated precision over the levels of recall, at one threshold."""
    right, wrong = np.cumsum(taken & ~ignored), np.cumsum(~taken & ~ignored)
    recall, precision = right / number, right / np.maximum(right + wrong, np.spacing(1))
    precision = np.maximum.accumulate(precision[::-1])[::-1]
    places = np.searchsorted(recall, _RECALLS, side="left")
    return float(np.mean(np.append(precision, 0.0)[np.minimum(places, len(precision))]))


def _match(boxes, scores, objects, crowds, area):
    """Matches the detections of an image with its objects, the surest first.

    Returns:
        Scores `(n,)`, whether a detection took an object, and whether it does not count, `(thresholds, n)`, and the number
        of objects that count.
    """
    ignored_objects = crowds | ~_within(objects, area)
    order = np.argsort(ignored_objects, kind="stable")  # Objects that count come first.
    objects, crowds, ignored_objects = objects[order], crowds[order], ignored_objects[order]
    overlaps = _overlaps(boxes, objects, crowds)
    taken = np.zeros((len(THRESHOLDS), len(boxes)), bool)
    ignored = taken.copy()
    for row, threshold in enumerate(THRESHOLDS):
        free = np.ones(len(objects), bool)
        for index in range(len(boxes)):
            best = _best(overlaps[index], free | crowds, ignored_objects, min(threshold, 1 - 1e-10))
            if best is not None:
                taken[row, index], ignored[row, index], free[best] = True, ignored_objects[best], False
    ignored |= ~taken & ~_within(boxes, area)
    return scores, taken, ignored, int(np.sum(~ignored_objects))


def _best(overlaps, free, ignored, threshold):
    """The free object of the largest overlap, and of one that counts before all others; None below the threshold."""
    for group in (~ignored, ignored):
        candidates = np.flatnonzero(free & group & (overlaps >= threshold))
        if len(candidates):
            # Of equal overlaps the last, as in pycocotools.
            return candidates[len(candidates) - 1 - int(np.argmax(overlaps[candidates][::-1]))]
    return None


def _overlaps(boxes, objects, crowds):
    """Intersection over union `(n, m)`; over the area of the detection for crowds."""
    first, last = boxes[:, None], objects[None]
    sides = np.minimum(first[..., 2:], last[..., 2:]) - np.maximum(first[..., :2], last[..., :2])
    inside = np.prod(np.maximum(sides, 0), axis=-1)
    union = np.where(crowds, _areas(boxes)[:, None], _areas(boxes)[:, None] + _areas(objects) - inside)
    return inside / np.maximum(union, np.finfo("float64").tiny)


def _areas(boxes):
    return (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])


def _within(boxes, area):
    return (_areas(boxes) >= area[0]) & (_areas(boxes) <= area[1])
