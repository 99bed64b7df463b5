"""Detections as outputs of a model."""

from __future__ import annotations

from typing import Unpack

import keras
from keras import ops

from keras_transformer.models.vision.detectors.refinement import query_selection
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, LayerOptions, Shape, Tensor
from keras_transformer.vision.detection.boxes import convert_boxes


@serializable
class DetectionOutputs(keras.layers.Layer):
    """What the logits and boxes of a detector mean: for each query the class, its probability, and the corners of the box.

    Args:
        independent_classes: bool. Whether the classes are independent, with a sigmoid each, instead of a softmax over them
            and the class of no object. Default False.

    Call arguments:
        logits: `(B, Q, C + 1)`, of which the last is that of no object; `(B, Q, C)` of independent classes.
        boxes: `(B, Q, 4)`: center, width and height, as shares of the image.

    Returns:
        dict of "boxes", `(B, Q, 4)`: left, top, right and bottom, as shares of the image; "labels", int32 `(B, Q)`; and
        "scores", `(B, Q)`. In the order of the queries, which rounding does not change.

    Example:

    >>> import numpy as np
    >>> found = DetectionOutputs()(np.log([[[0.2, 0.7, 0.1]]]), np.array([[[0.5, 0.5, 0.2, 0.4]]]))
    >>> int(found["labels"][0, 0]), round(float(found["scores"][0, 0]), 4)
    (1, 0.7)
    """

    def __init__(self, independent_classes: bool = False, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.independent_classes = independent_classes

    def call(self, logits: Tensor, boxes: Tensor) -> dict[str, Tensor]:
        likely = ops.sigmoid(logits) if self.independent_classes else ops.softmax(logits)[..., :-1]
        # Keras's argmax has operators that TFLite lacks.
        scores, labels = ops.top_k(likely, 1)
        return {
            "boxes": convert_boxes(boxes, "cxcywh", "xyxy"),
            "labels": ops.cast(labels[..., 0], "int32"),
            "scores": scores[..., 0],
        }

    def compute_output_spec(self, logits: Tensor, boxes: Tensor) -> dict[str, keras.KerasTensor]:
        return {
            "boxes": keras.KerasTensor(boxes.shape, dtype=self.compute_dtype),
            "labels": keras.KerasTensor(boxes.shape[:2], dtype="int32"),
            "scores": keras.KerasTensor(boxes.shape[:2], dtype=self.compute_dtype),
        }

    def compute_output_shape(self, logits_shape: Shape, boxes_shape: Shape) -> dict[str, object]:
        return {"boxes": boxes_shape, "labels": boxes_shape[:2], "scores": boxes_shape[:2]}

    def get_config(self) -> Config:
        return {**super().get_config(), "independent_classes": self.independent_classes}


def with_detections(model: keras.Model, name: str | None = None) -> keras.Model:
    """A detector whose outputs are detections, for files that need no further computation.

    Args:
        model: `tasks.ObjectDetector`.
        name: str; None for that of `model`.

    Returns:
        `keras.Model` with the weights of `model`: its inputs to the outputs of `DetectionOutputs`: "boxes", as shares of the
        image, "labels" and "scores". The caller keeps the detections with a score above a threshold.

    Raises:
        ValueError: a model without "logits" and "boxes".

    Example:

    >>> from keras_transformer import models, tasks
    >>> backbone = models.YOLOS(models.Size(1, 8, 2, 16), patch_size=4, image_size=16, num_detection_tokens=5)
    >>> model = with_detections(tasks.ObjectDetector(backbone, num_classes=3))
    >>> model.output["boxes"].shape, model.output["labels"].dtype
    ((None, 5, 4), 'int32')
    """
    outputs = model.output
    if not isinstance(outputs, dict) or not {"logits", "boxes"} <= set(outputs):
        raise ValueError(f"{model.name!r} has no outputs 'logits' and 'boxes', as tasks.ObjectDetector has.")
    independent = query_selection(model) is not None
    decode = DetectionOutputs(independent, dtype="float32", name="detections")
    found = decode(outputs["logits"], outputs["boxes"])
    return keras.Model(model.input, found, name=name or model.name)
