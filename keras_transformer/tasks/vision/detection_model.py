"""A functional model that finds objects in images."""

from __future__ import annotations

from typing import NamedTuple

import keras
import numpy as np

from keras_transformer.models.vision.detectors.refinement import query_selection
from keras_transformer.tasks.vision.image_model import ImageModel
from keras_transformer.tasks.vision.with_detections import DetectionOutputs
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import ArrayLike, Tensor, Tensors


class Detections(NamedTuple):
    """Objects of one image, the surest first.

    Attributes:
        boxes: float32 `(n, 4)`: left, top, right and bottom, in pixels of the image. They may exceed it.
        labels: int32 `(n,)`: the classes.
        scores: float32 `(n,)`: the probabilities of the classes.

    Example:

    >>> Detections(np.array([[1.0, 2.0, 9.0, 8.0]]), np.array([3]), np.array([0.9])).labels.tolist()
    [3]
    """

    boxes: np.ndarray
    labels: np.ndarray
    scores: np.ndarray


@serializable
class DetectionModel(ImageModel):
    """Functional model from images to "logits" and "boxes" of objects, as `tasks.ObjectDetector` builds it.

    It trains with `training.DetectionLoss`, which sees both outputs at once; other losses are applied to each output, as in
    any Keras model. It saves its image processor in its `.keras` file.

    Args:
        inputs: symbolic inputs, as of `keras.Model`: "images".
        outputs: dict of symbolic outputs: "logits" `(B, Q, classes + 1)`, of which the last is that of no object, or
            `(B, Q, classes)` of independent classes, if a `vision.QuerySelection` chooses the queries; and "boxes"
            `(B, Q, 4)`, "cxcywh", as shares of the image. In training there may be "auxiliary_logits" and
            "auxiliary_boxes", `(B, blocks, Q, ...)`.
        name: str.

    Attributes:
        processor: `vision.ImageProcessor`, or None. Set it after construction.

    Returns:
        What `keras.Model` with these inputs and outputs returns.

    Example:

    >>> from keras_transformer import models, tasks, vision
    >>> backbone = models.YOLOS(models.Size(1, 8, 2, 16), patch_size=4, image_size=16, num_detection_tokens=3)
    >>> model = tasks.ObjectDetector(backbone, num_classes=2)
    >>> model.processor = vision.ImageProcessor(size=(16, 16))
    >>> found = model.detect(np.zeros((1, 40, 30, 3), "uint8"), threshold=0.0)
    >>> found[0].boxes.shape
    (3, 4)
    """

    def compute_loss(
        self,
        x: Tensors | None = None,
        y: Tensors | None = None,
        y_pred: Tensors | None = None,
        sample_weight: Tensors | None = None,
        training: bool = True,
    ) -> Tensor:
        """The loss of a batch: by a loss with `is_joint`, from all outputs together; called by Keras."""
        loss = getattr(self, "loss", None)
        if loss is None or not getattr(loss, "is_joint", False):
            return super().compute_loss(x, y, y_pred, sample_weight, training=training)
        independent, expected = has_independent_classes(self), getattr(loss, "has_independent_classes", False)
        if independent != expected:
            raise ValueError(
                f"{self.name!r} has {'independent classes' if independent else 'a class of no object'}: use "
                f"DetectionLoss(classification={'varifocal' if independent else 'softmax'!r})."
            )
        losses: list[Tensor] = self.losses
        return sum(losses, loss(y, y_pred, sample_weight))

    def detect(self, images: ArrayLike, threshold: float = 0.5, *, batch_size: int = 8) -> list[Detections]:
        """Finds objects in images. A batch gives for each image what the image gives alone.

        A model for images of any size sees each image in the size that the processor makes of it, without padding; one for
        images of a fixed size sees all in that size. Of independent classes, an object may have several, as an object for
        each; of all pairs of queries and classes, there are at most as many as queries.

        Args:
            images: one image or a list, as of `vision.ImageProcessor`.
            threshold: float in [0, 1]. Only objects with a larger score are returned.
            batch_size: int >= 1. The largest number of images of one size that are processed together.

        Returns:
            List of `Detections`, one for each image.

        Raises:
            ValueError: the model has no processor.
            ImageError: an image that cannot be read.
        """
        found, independent = [], has_independent_classes(self)
        decode = DetectionOutputs(independent, dtype="float32")
        for outputs, (width, height) in self._outputs_of(images, batch_size):
            logits, boxes = outputs["logits"], outputs["boxes"]
            if independent:
                logits, boxes = _pairs(logits, boxes)
            every = decode(logits[None], boxes[None])
            parts = [keras.ops.convert_to_numpy(every[name])[0] for name in ("boxes", "labels", "scores")]
            found.append(_surest(Detections(*parts), threshold, width, height, len(outputs["boxes"])))
        return found


def has_independent_classes(model: keras.Model) -> bool:
    """Whether the classes of a detector are independent of one another, without a class of no object."""
    return query_selection(model) is not None


def _pairs(logits, boxes):
    """One row for each query and class, `(Q C, C)` and `(Q C, 4)`: all but the logit of this class are minus infinity."""
    queries, classes = logits.shape
    alone = np.where(np.eye(classes, dtype=bool), logits[:, None], -np.inf)
    return alone.reshape(queries * classes, classes), np.repeat(boxes, classes, axis=0)


def _surest(found, threshold, width, height, count):
    """At most `count` above a threshold, of an image of `width` x `height` pixels, with boxes in pixels, not shares."""
    order = np.argsort(-found.scores, kind="stable")[:count]
    order = order[found.scores[order] > threshold]
    corners = found.boxes[order] * np.array([width, height, width, height], "float32")
    return Detections(corners, found.labels[order], found.scores[order])
