"""Non-maximum suppression: of boxes that overlap, the one with the highest score."""

from __future__ import annotations

import tensorflow as tf

from keras_transformer.export.graph.part import Node
from keras_transformer.export.operations.operation import TFLITE, Decomposed, Operation, in_both
from keras_transformer.export.operations.sizes import size
from keras_transformer.utils.types import Tensor


def suppressed(boxes: Tensor, scores: Tensor, count: Tensor, overlap: Tensor, least: Tensor) -> Tensor:
    """TFLite's own operator, whose result has always the largest size, without what is behind the boxes found."""
    found, valid = tf.raw_ops.NonMaxSuppressionV4(
        boxes=boxes,
        scores=scores,
        max_output_size=count,
        iou_threshold=overlap,
        score_threshold=least,
        pad_to_max_output_size=True,
    )
    return found[:valid]


def suppressed_with_count(
    boxes: Tensor, scores: Tensor, count: Tensor, overlap: Tensor, least: Tensor
) -> tuple[Tensor, Tensor]:
    found = suppressed(boxes, scores, count, overlap, least)
    return found, tf.size(found)


def suppressed_with_scores(
    boxes: Tensor, scores: Tensor, count: Tensor, overlap: Tensor, least: Tensor, sigma: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    found, kept, valid = tf.raw_ops.NonMaxSuppressionV5(
        boxes=boxes,
        scores=scores,
        max_output_size=count,
        iou_threshold=overlap,
        score_threshold=least,
        soft_nms_sigma=sigma,
        pad_to_max_output_size=True,
    )
    return found[:valid], kept[:valid], valid


def suppressed_by_class(
    boxes: Tensor,
    scores: Tensor,
    count: Tensor,
    total: Tensor,
    overlap: Tensor,
    least: Tensor,
    *,
    pad_per_class: bool,
    clip_boxes: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The classes of all images side by side: in each round, each has the best of the boxes that are left to it."""
    classes = size(scores, 2)
    scores = tf.transpose(scores, [0, 2, 1])
    kept = _kept(tf.transpose(boxes, [0, 2, 1, 3]), scores, count, overlap, least)
    batch, number = size(scores, 0), size(scores, 1) * size(scores, 2)
    given = tf.minimum(count * classes, total) if pad_per_class else total
    # There may be fewer boxes than results.
    kept = tf.pad(tf.reshape(kept, tf.stack([batch, number])), [[0, 0], [0, given]], constant_values=kept.dtype.min)
    best, places = tf.math.top_k(kept, given)
    is_valid = best > kept.dtype.min
    places = tf.where(is_valid, places, tf.zeros_like(places))
    labels = places // size(scores, 2)
    of_class = labels if boxes.shape[2] != 1 else tf.zeros_like(labels)
    flat = tf.reshape(boxes, tf.stack([batch, size(boxes, 1) * size(boxes, 2), 4]))
    found = tf.gather(flat, places % size(scores, 2) * size(boxes, 2) + of_class, batch_dims=1)
    found = tf.clip_by_value(found, 0.0, 1.0) if clip_boxes else found
    return (
        tf.where(tf.expand_dims(is_valid, 2), found, tf.zeros_like(found)),
        tf.where(is_valid, best, tf.zeros_like(best)),
        tf.where(is_valid, tf.cast(labels, tf.float32), tf.zeros_like(best)),
        tf.reduce_sum(tf.cast(is_valid, tf.int32), 1),
    )


def _kept(boxes: Tensor, scores: Tensor, count: Tensor, overlap: Tensor, least: Tensor) -> Tensor:
    """The scores of the boxes that are found, and the lowest number for all others.

    Args:
        boxes: (images, classes, boxes, 4); one class stands for all.
        scores: (images, classes, boxes).
        count: how many are found of each class at most.
        overlap: the largest intersection over union of two boxes.
        least: scores have to be above it.
    """
    nothing = tf.fill(tf.shape(scores), tf.constant(scores.dtype.min))
    numbers = tf.range(tf.shape(scores)[2])

    def is_left(step: Tensor, left: Tensor, kept: Tensor) -> Tensor:
        return tf.logical_and(step < count, tf.reduce_max(left) > scores.dtype.min)

    def next_best(step: Tensor, left: Tensor, kept: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        best = tf.argmax(left, 2, tf.int32)
        is_best = tf.equal(numbers, tf.expand_dims(best, 2))
        kept_now = tf.where(is_best, left, kept)
        share = tf.expand_dims(tf.cast(is_best, boxes.dtype), 3)
        chosen = tf.reduce_sum(tf.where(share > 0.0, boxes, tf.zeros_like(boxes)), 2, keepdims=True)
        is_gone = tf.logical_or(is_best, _overlap(chosen, boxes) > overlap)
        left_now = tf.where(is_gone, nothing, left)
        kept_now.set_shape(kept.shape)
        left_now.set_shape(left.shape)
        return step + 1, left_now, kept_now

    left = tf.where(scores > least, scores, nothing)
    return tf.while_loop(is_left, next_best, (tf.constant(0), left, nothing))[2]


def _overlap(x: Tensor, y: Tensor) -> Tensor:
    """The intersection over union of boxes, whose corners are any two opposite ones."""
    (low_x, high_x), (low_y, high_y) = (
        (tf.minimum(each[..., :2], each[..., 2:]), tf.maximum(each[..., :2], each[..., 2:])) for each in (x, y)
    )
    area_x, area_y = (tf.reduce_prod(high - low, -1) for low, high in ((low_x, high_x), (low_y, high_y)))
    common = tf.reduce_prod(tf.maximum(tf.minimum(high_x, high_y) - tf.maximum(low_x, low_y), 0.0), -1)
    is_empty = tf.logical_or(area_x <= 0.0, area_y <= 0.0)
    union = tf.where(is_empty, tf.ones_like(common), area_x + area_y - common)
    return tf.where(is_empty, tf.zeros_like(common), common / union)


def _has_any_size(node: Node) -> bool:
    return not node.attribute("pad_to_max_output_size")


_CLASSES = Decomposed(suppressed_by_class, ("pad_per_class", "clip_boxes"))

OPERATIONS = (
    Operation("CombinedNonMaxSuppression", in_both(_CLASSES)),
    Operation("NonMaxSuppressionV3", {TFLITE: Decomposed(suppressed)}),
    Operation("NonMaxSuppressionV4", {TFLITE: Decomposed(suppressed_with_count, when=_has_any_size)}),
    Operation("NonMaxSuppressionV5", {TFLITE: Decomposed(suppressed_with_scores, when=_has_any_size)}),
)
