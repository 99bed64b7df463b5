"""Masks as outputs of a model."""

from __future__ import annotations

import keras
from keras import ops

from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Shape, Tensor
from keras_transformer.vision.resizing.resize_like import resize


@serializable
class MaskOutputs(keras.layers.Layer):
    """The class of each pixel of images: that of the largest logit, resized bilinearly to the images.

    Call arguments:
        logits: `(B, rows, columns, classes)`.
        images: `(B, height, width, channels)`: only their size counts.

    Returns:
        int32 `(B, height, width)`.

    Example:

    >>> import numpy as np
    >>> logits = np.array([[[[1.0, 0.0], [0.0, 4.0]]]])
    >>> np.asarray(MaskOutputs()(logits, np.zeros((1, 1, 4, 3)))).tolist()
    [[[0, 1, 1, 1]]]
    """

    def call(self, logits: Tensor, images: Tensor) -> Tensor:
        # Keras's argmax has operators that TFLite lacks.
        _, classes = ops.top_k(resize(logits, ops.shape(images)[1:3]), 1)
        return ops.cast(classes[..., 0], "int32")

    def compute_output_spec(self, logits: Tensor, images: Tensor) -> keras.KerasTensor:
        return keras.KerasTensor(images.shape[:3], dtype="int32")

    def compute_output_shape(self, logits_shape: Shape, images_shape: Shape) -> Shape:
        return images_shape[:3]


def with_masks(model: keras.Model, name: str | None = None) -> keras.Model:
    """A segmenter whose output is the class of each pixel, for files that need no further computation.

    Args:
        model: `tasks.SemanticSegmenter`.
        name: str; None for that of `model`.

    Returns:
        `keras.Model` with the weights of `model`: "images" to {"masks": int32 `(B, height, width)`}.

    Raises:
        ValueError: a model whose output is not logits `(B, rows, columns, classes)`.

    Example:

    >>> from keras_transformer import models, tasks
    >>> size = models.SegFormerSize((8,), (1,), (2,), (3,), (2,), (1,), (2,))
    >>> model = with_masks(tasks.SemanticSegmenter(models.SegFormer(size, 16), num_classes=3, hidden_dim=8))
    >>> model.output["masks"].shape
    (None, 16, 16)
    """
    logits, images = model.output, model.inputs[0]
    if len(getattr(logits, "shape", ())) != 4 or len(images.shape) != 4:
        raise ValueError(f"{model.name!r} has no logits (B, rows, columns, classes), as tasks.SemanticSegmenter has.")
    masks = MaskOutputs(dtype="float32", name="masks")(logits, images)
    return keras.Model(model.input, {"masks": masks}, name=name or model.name)
