"""Average precision of detections after each epoch."""

from __future__ import annotations

from collections.abc import Sequence

import keras

from keras_transformer.training.metrics.average_precision import average_precision
from keras_transformer.utils.types import ArrayLike, Logs


class DetectionMetrics(keras.callbacks.Callback):
    """Callback that detects objects after an epoch and adds COCO's figures to the logs: "val_ap", "val_ap_50", "val_ap_75".

    The figures are in the history and the progress bar, and later callbacks can monitor them (`mode="max"`).

    Args:
        images: list of images, as `detect` of the model takes them.
        boxes: list of float arrays `(m, 4)`: the objects of each image, "xyxy", in pixels.
        labels: list of integer arrays `(m,)`.
        names: figures of `average_precision`. Default: "ap", "ap_50" and "ap_75".
        every: int >= 1. Interval in epochs. Default 1.
        prefix: str. Prefix of the names in the logs. Default "val_".

    Raises:
        ValueError: `every` below 1.

    Example:

    >>> import numpy as np
    >>> from keras_transformer import models, tasks, vision
    >>> model = tasks.ObjectDetector(models.YOLOS(models.Size(1, 8, 2, 16), 4, 8, num_detection_tokens=2), num_classes=1)
    >>> model.processor = vision.ImageProcessor()
    >>> metrics = DetectionMetrics(np.zeros((1, 8, 8, 3), "uint8"), [[[1, 1, 5, 5]]], [[0]], names=["ap_50"])
    >>> metrics.set_model(model)
    >>> logs = {}
    >>> metrics.on_epoch_end(0, logs)
    >>> list(logs)
    ['val_ap_50']
    """

    def __init__(
        self,
        images: ArrayLike,
        boxes: Sequence[ArrayLike],
        labels: Sequence[ArrayLike],
        *,
        names: Sequence[str] = ("ap", "ap_50", "ap_75"),
        every: int = 1,
        prefix: str = "val_",
    ) -> None:
        super().__init__()
        if every < 1:
            raise ValueError(f"every must be at least 1. Received: {every}")
        self.images = images
        self.boxes = boxes
        self.labels = labels
        self.names = names
        self.every = every
        self.prefix = prefix

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        if (epoch + 1) % self.every or logs is None:
            return
        model: keras.Model = self.model
        # Precision is a matter of order: no detection is left out.
        scores = average_precision(model.detect(self.images, threshold=0.0), self.boxes, self.labels)
        logs |= {f"{self.prefix}{name}": scores[name] for name in self.names}
