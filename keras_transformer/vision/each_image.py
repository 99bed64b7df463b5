"""An image encoder for rows of several images."""

from __future__ import annotations

from typing import Unpack

import keras
from keras import ops

from keras_transformer.utils.serialization import resolve, serializable, serialize
from keras_transformer.utils.types import Config, LayerOptions, Shape, Tensor


@serializable
class EachImage(keras.layers.Layer):
    """Applies an image encoder to every image of every row.

    Args:
        encoder: `keras.Model` from images `(B, height, width, channels)`, or a dict of tensors `(B, ...)`, to a tensor; or
            its config.

    Call arguments:
        images: float `(B, I, height, width, channels)`, or a dict of tensors `(B, I, ...)`.

    Returns:
        `(B, I, ...)`.

    Example:

    >>> import numpy as np
    >>> from keras_transformer import models
    >>> encoder = models.ViT(models.Size(1, 8, 2, 16), patch_size=4, image_size=8)
    >>> tuple(EachImage(encoder)(np.ones((2, 3, 8, 8, 3))).shape)
    (2, 3, 5, 8)
    """

    def __init__(self, encoder: keras.Model | Config, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.encoder = resolve(encoder, {}, keras.Model, argument="encoder")

    def build(self, images_shape: Shape) -> None:
        pass  # The encoder is already built.

    def call(self, images: Tensor, training: bool | None = None) -> Tensor:
        each = keras.tree.map_structure(lambda x: ops.reshape(x, (-1, *ops.shape(x)[2:])), images)
        encoded = self.encoder(each, training=training)
        batch, count = ops.shape(keras.tree.flatten(images)[0])[:2]
        return ops.reshape(encoded, (batch, count, *ops.shape(encoded)[1:]))

    def compute_output_spec(self, images: Tensor, training: bool | None = None) -> keras.KerasTensor:
        leading = keras.tree.flatten(images)[0].shape[:2]
        return keras.KerasTensor((*leading, *self.encoder.output_shape[1:]), dtype=self.compute_dtype)

    def get_config(self) -> Config:
        return {**super().get_config(), "encoder": serialize(self.encoder)}
