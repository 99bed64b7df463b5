"""Prompts of images as rows of a batch, and back."""

from __future__ import annotations

import keras
from keras import ops

from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Shape, Tensor


@serializable
class FoldPrompts(keras.layers.Layer):
    """Makes every prompt of every image a row of the batch: `(B, P, N, ...)` to `(B · P, N, ...)`.

    Call arguments:
        inputs: any dtype `(B, P, N, ...)`.

    Returns:
        `(B · P, N, ...)`, of the same dtype.

    Example:

    >>> import numpy as np
    >>> tuple(FoldPrompts()(np.zeros((2, 3, 4, 5))).shape)
    (6, 4, 5)
    """

    def __init__(self, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.autocast = False

    def call(self, inputs: Tensor) -> Tensor:
        return ops.reshape(inputs, (-1, *ops.shape(inputs)[2:]))

    def compute_output_spec(self, inputs: Tensor) -> keras.KerasTensor:
        return keras.KerasTensor(self.compute_output_shape(inputs.shape), dtype=inputs.dtype)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        count = None if None in input_shape[:2] else input_shape[0] * input_shape[1]
        return (count, *input_shape[2:])


@serializable
class UnfoldPrompts(keras.layers.Layer):
    """The reverse of `FoldPrompts`: `(B · P, ...)` to `(B, P, ...)`.

    Call arguments:
        inputs: float `(B · P, ...)`.
        like: `(B, P, ...)`: only its size counts.

    Returns:
        `(B, P, ...)`.

    Example:

    >>> import numpy as np
    >>> tuple(UnfoldPrompts()(np.zeros((6, 4)), np.zeros((2, 3, 7))).shape)
    (2, 3, 4)
    """

    def call(self, inputs: Tensor, like: Tensor) -> Tensor:
        return ops.reshape(inputs, (-1, ops.shape(like)[1], *inputs.shape[1:]))

    def compute_output_spec(self, inputs: Tensor, like: Tensor) -> keras.KerasTensor:
        return keras.KerasTensor(self.compute_output_shape(inputs.shape, like.shape), dtype=self.compute_dtype)

    def compute_output_shape(self, inputs_shape: Shape, like_shape: Shape) -> Shape:
        return (*like_shape[:2], *inputs_shape[1:])
