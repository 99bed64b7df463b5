"""A functional model that gives each pixel of an image a class."""

from __future__ import annotations

import keras
import numpy as np

from keras_transformer.tasks.vision.image_model import ImageModel
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import ArrayLike, Tensor, Tensors
from keras_transformer.vision.resizing.interpolation import resize_matrix
from keras_transformer.vision.resizing.resize_like import resize


@serializable
class SegmentationModel(ImageModel):
    """Functional model from images to logits of a class for each pixel, as `tasks.SemanticSegmenter` builds it.

    Losses and metrics see the logits resized to the labels, which may have more rows and columns, as those of
    `vision.mask_targets`. It saves its image processor in its `.keras` file.

    Args:
        inputs: symbolic inputs, as of `keras.Model`: "images".
        outputs: symbolic logits `(B, rows, columns, classes)`.
        name: str.

    Attributes:
        processor: `vision.ImageProcessor`, or None. Set it after construction.

    Returns:
        What `keras.Model` with these inputs and outputs returns.

    Example:

    >>> from keras_transformer import models, tasks, vision
    >>> size = models.SegFormerSize((8,), (1,), (2,), (3,), (2,), (1,), (2,))
    >>> model = tasks.SemanticSegmenter(models.SegFormer(size), num_classes=4, hidden_dim=8)
    >>> model.processor = vision.ImageProcessor(size=(16, 16))
    >>> model.segment(np.zeros((1, 40, 30, 3), "uint8"))[0].shape
    (40, 30)
    """

    def compute_loss(
        self,
        x: Tensors | None = None,
        y: Tensors | None = None,
        y_pred: Tensors | None = None,
        sample_weight: Tensors | None = None,
        training: bool = True,
    ) -> Tensor:
        """The loss of a batch, of logits in the size of the labels; called by Keras."""
        return super().compute_loss(x, y, _resized(y_pred, y), sample_weight, training=training)

    def compute_metrics(
        self, x: Tensors, y: Tensors, y_pred: Tensors, sample_weight: Tensors | None = None
    ) -> dict[str, object]:
        """The metrics of a batch, of logits in the size of the labels; called by Keras."""
        return super().compute_metrics(x, y, _resized(y_pred, y), sample_weight)

    def segment(self, images: ArrayLike, *, batch_size: int = 8) -> list[np.ndarray]:
        """Gives each pixel of images a class: that of the largest logit, resized bilinearly to the image.

        Args:
            images: one image or a list, as of `vision.ImageProcessor`.
            batch_size: int >= 1. The largest number of images of one size that are processed together.

        Returns:
            List of int32 arrays `(height, width)`, in the size of each image.

        Raises:
            ValueError: the model has no processor.
            ImageError: an image that cannot be read.
        """
        return [
            _enlarged(logits, height, width).argmax(axis=-1).astype("int32")
            for logits, (width, height) in self._outputs_of(images, batch_size)
        ]


def _resized(logits, labels):
    """The logits in the size of integer labels `(B, height, width)`."""
    return logits if labels is None or len(labels.shape) < 3 else resize(logits, keras.ops.shape(labels)[1:3])


def _enlarged(logits, height, width):
    """The logits of one image in the size of the image."""
    x = np.tensordot(resize_matrix(logits.shape[0], height), logits, 1)
    return resize_matrix(logits.shape[1], width) @ x
