"""The loss of sets of objects."""

from __future__ import annotations

from collections.abc import Mapping

import keras
from keras import ops

from keras_transformer.training.distribution.replicas import mean_of_replicas, share_of_replica
from keras_transformer.training.losses.assignment import assign
from keras_transformer.training.losses.cross_entropy import cross_entropy
from keras_transformer.utils.serialization import choice, serializable
from keras_transformer.utils.types import Config, Tensor
from keras_transformer.vision.detection.boxes import box_iou, convert_boxes, generalized_box_iou


@serializable
class DetectionLoss(keras.losses.Loss):
    """Loss of DETR: objects are matched with the queries that describe them best, and all queries learn what they matched.

    Of an image with objects m, and the cheapest assignment s of objects to different queries,

        cost[m, q] = -a p_q(c_m) + b |b_m - b_q|_1 - g GIoU(b_m, b_q)
        loss       = a mean_q w_q (-log p_q(c_q)) + sum_m (b |b_m - b_s(m)|_1 + g (1 - GIoU(b_m, b_s(m)))) / M

    with the class weight a, the box weight b and the overlap weight g. A query without an object has the class of no object,
    and the weight `no_object_weight` in the weighted mean; M is the number of objects of the batch, at least 1. With
    "auxiliary_logits" and "auxiliary_boxes", the same is added for every block, with an assignment of its own.

    Of independent classes, as those of RT-DETR and D-FINE, `classification="varifocal"` compares the probability p of each
    class with t = IoU(b_m, b_s(m)) for the class of the object that a query has matched, and with t = 0 otherwise:

        class cost = 2 (0.25 (1 - p)^2 (-log p) - 0.75 p^2 (-log(1 - p)))
        class loss = sum_q,c w (-t log p - (1 - t) log(1 - p)) / M,   w = t for the class of the object, else 0.75 p^2

    Args:
        class_weight: float >= 0. a. Default 1.
        box_weight: float >= 0. b. Default 5.
        overlap_weight: float >= 0. g. Default 2.
        no_object_weight: float > 0. Not used for independent classes. Default 0.1.
        classification: "softmax", with a class of no object, or "varifocal". Default "softmax".
        name: str. Default "detection_loss".

    Call arguments:
        y_true: dict of "labels", integers `(B, M)`, -1 for no object, and "boxes", `(B, M, 4)`, "cxcywh", as shares of the
            image: see `vision.box_targets`.
        y_pred: dict of "logits" `(B, Q, C + 1)`, of which the last is that of no object, or `(B, Q, C)` of independent
            classes; "boxes" `(B, Q, 4)`, with `Q >= M`; and maybe "auxiliary_logits" and "auxiliary_boxes",
            `(B, blocks, Q, ...)`.
        sample_weight: `(B,)`, or None. Weights of images, in the divisors too.

    Returns:
        The loss, a float32 scalar.

    Raises:
        ValueError: an argument out of its range; more rows for objects than queries.

    It needs a model that gives it all outputs at once, as those of `tasks.ObjectDetector` do.

    Example:

    >>> import numpy as np
    >>> truth = {"labels": np.array([[0, -1]]), "boxes": np.array([[[0.5, 0.5, 0.2, 0.2], [0, 0, 0, 0]]])}
    >>> guess = {"logits": np.array([[[0.0, 9.0], [9.0, 0.0]]]), "boxes": np.array([[[0.1] * 4, [0.5, 0.5, 0.2, 0.2]]])}
    >>> round(float(DetectionLoss()(truth, guess)), 4)
    0.0001

    Reference: Carion et al., DETR, arXiv 2005.12872, equations 1 and 2, section 3.1 and appendix A.2; the weighted mean over
    queries, and M of the whole batch, as in its published code. Varifocal loss: Zhang et al., VarifocalNet, arXiv
    2008.13367, equation 2, with the weights and the focal cost of the published code of Zhao et al., RT-DETR, arXiv
    2304.08069. Left out: the losses of the distributions of D-FINE, and those of queries for denoising.
    """

    is_joint = True

    def __init__(
        self,
        class_weight: float = 1.0,
        box_weight: float = 5.0,
        overlap_weight: float = 2.0,
        no_object_weight: float = 0.1,
        classification: str = "softmax",
        name: str = "detection_loss",
    ) -> None:
        for label, value in (
            ("class_weight", class_weight),
            ("box_weight", box_weight),
            ("overlap_weight", overlap_weight),
        ):
            if not value >= 0:
                raise ValueError(f"{label} must be at least 0. Received: {value!r}")
        if not no_object_weight > 0:
            raise ValueError(f"no_object_weight must be above 0. Received: {no_object_weight!r}")
        self.has_independent_classes = choice(
            classification, {"softmax": False, "varifocal": True}, argument="classification"
        )
        super().__init__(name=name, reduction="sum", dtype="float32")
        self.classification = classification
        self.class_weight = class_weight
        self.box_weight = box_weight
        self.overlap_weight = overlap_weight
        self.no_object_weight = no_object_weight

    def __call__(
        self, y_true: Mapping[str, Tensor], y_pred: Mapping[str, Tensor], sample_weight: Tensor | None = None
    ) -> Tensor:
        truth = {"labels": ops.cast(y_true["labels"], "int32"), "boxes": ops.cast(y_true["boxes"], "float32")}
        guesses = {name: ops.cast(value, "float32") for name, value in y_pred.items()}
        objects, queries = truth["labels"].shape[1], guesses["logits"].shape[1]
        if objects is not None and queries is not None and objects > queries:
            raise ValueError(f"The model has {queries} queries, too few for the {objects} rows of objects.")
        weights = ops.ones_like(guesses["logits"][:, 0, 0])
        weights = weights if sample_weight is None else weights * ops.cast(sample_weight, "float32")
        total = self._of_block(truth, guesses["logits"], guesses["boxes"], weights)
        if "auxiliary_logits" in guesses:
            for block in range(guesses["auxiliary_logits"].shape[1]):
                logits, boxes = (guesses[f"auxiliary_{name}"][:, block] for name in ("logits", "boxes"))
                total = total + self._of_block(truth, logits, boxes, weights)
        return total

    def call(self, y_true: Mapping[str, Tensor], y_pred: Mapping[str, Tensor]) -> Tensor:
        return self(y_true, y_pred)

    def _of_block(self, truth, logits, boxes, weights):
        valid = truth["labels"] >= 0
        labels = ops.maximum(truth["labels"], 0)
        columns = assign(self._costs(labels, truth["boxes"], logits, boxes), valid)
        if self.has_independent_classes:
            class_loss = self._varifocal_loss(labels, truth["boxes"], columns, valid, logits, boxes, weights)
        else:
            class_loss = self._class_loss(labels, columns, logits, weights)
        return self.class_weight * class_loss + self._box_loss(truth["boxes"], columns, valid, boxes, weights)

    def _costs(self, labels, true_boxes, logits, boxes):
        """`(B, M, Q)`."""
        gain = _focal_gain(logits) if self.has_independent_classes else ops.softmax(logits)
        likely = ops.take_along_axis(gain, ops.expand_dims(labels, 1), axis=-1)
        pairs = ops.expand_dims(true_boxes, 2), ops.expand_dims(boxes, 1)
        distance = ops.sum(ops.abs(pairs[0] - pairs[1]), axis=-1)
        corners = (convert_boxes(each, "cxcywh", "xyxy") for each in pairs)
        overlap = generalized_box_iou(*corners)
        likely = ops.transpose(likely, (0, 2, 1))
        return self.box_weight * distance - self.class_weight * likely - self.overlap_weight * overlap

    def _varifocal_loss(self, labels, true_boxes, columns, valid, logits, boxes, weights):
        matches = ops.cast(_matches(columns, logits), "float32")
        classes = ops.one_hot(labels, logits.shape[-1], dtype="float32")
        corners = (convert_boxes(each, "cxcywh", "xyxy") for each in (true_boxes, _chosen(boxes, columns)))
        overlap = ops.stop_gradient(ops.expand_dims(box_iou(*corners), 2))
        # Each query has matched one object at most: `(B, Q, C)` of sums over the objects.
        is_class, target = (ops.einsum("bmq,bmc->bqc", matches, each) for each in (classes, classes * overlap))
        likely = ops.stop_gradient(ops.sigmoid(logits))
        weight = 0.75 * likely**2 * (1 - is_class) + target
        entropy = ops.softplus(logits) - target * logits
        total = ops.sum(weight * entropy, axis=(1, 2)) * weights
        return _ratio(ops.sum(total), ops.cast(valid, "float32") * ops.expand_dims(weights, 1), 1.0)

    def _class_loss(self, labels, columns, logits, weights):
        none = logits.shape[-1] - 1
        is_match = _matches(columns, logits)
        is_object = ops.any(is_match, axis=1)
        found = ops.sum(ops.where(is_match, ops.expand_dims(labels, 2), 0), axis=1)
        classes = ops.where(is_object, found, none)
        weights = ops.where(is_object, 1.0, self.no_object_weight) * ops.expand_dims(weights, 1)
        return _mean(cross_entropy(classes, logits), weights, 0.0)

    def _box_loss(self, true_boxes, columns, valid, boxes, weights):
        chosen = _chosen(boxes, columns)
        distance = ops.sum(ops.abs(true_boxes - chosen), axis=-1)
        corners = (convert_boxes(each, "cxcywh", "xyxy") for each in (true_boxes, chosen))
        losses = self.box_weight * distance + self.overlap_weight * (1 - generalized_box_iou(*corners))
        return _mean(losses, ops.cast(valid, "float32") * ops.expand_dims(weights, 1), 1.0)

    def get_config(self) -> Config:
        return {
            "class_weight": self.class_weight,
            "box_weight": self.box_weight,
            "overlap_weight": self.overlap_weight,
            "no_object_weight": self.no_object_weight,
            "classification": self.classification,
            "name": self.name,
        }


def _matches(columns, logits):
    """Whether each object has matched each query, `(B, M, Q)`."""
    return ops.equal(ops.expand_dims(columns, 2), ops.arange(ops.shape(logits)[1], dtype="int32"))


def _chosen(boxes, columns):
    """The boxes of the queries that the objects have matched, `(B, M, 4)`."""
    return ops.take_along_axis(boxes, ops.expand_dims(ops.maximum(columns, 0), 2), axis=1)


def _focal_gain(logits):
    """What the class of an object gains by a query, `(B, Q, C)`: the negative focal cost, relative to `class_weight`."""
    likely = ops.sigmoid(logits)
    positive = 0.25 * (1 - likely) ** 2 * -ops.log(likely + 1e-8)
    negative = 0.75 * likely**2 * -ops.log(1 - likely + 1e-8)
    return 2 * (negative - positive)


def _mean(losses, weights, least):
    """The weighted mean of a batch, with a divisor of at least `least`."""
    return _ratio(ops.sum(losses * weights), weights, least)


def _ratio(total, weights, least):
    """A sum, divided by that of the weights but by `least` at least; under `tf.distribute` by that of all replicas."""
    divisor = ops.sum(weights)
    divisor = ops.maximum(divisor, least) if least else divisor
    mean = ops.where(divisor > 0, total / ops.where(divisor > 0, divisor, 1.0), 0.0)
    return mean_of_replicas(share_of_replica(mean), weights)
