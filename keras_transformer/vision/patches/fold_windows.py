"""Windows of a sequence as rows of the batch."""

from __future__ import annotations

from typing import Unpack

import keras
from keras import ops

from keras_transformer.attention.arguments import positive
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, LayerOptions, Shape, Tensor


@serializable
class FoldWindows(keras.layers.Layer):
    """Makes a row of the batch of each window of consecutive tokens, so that each attends within itself.

    Args:
        length: int >= 1: the tokens of a window S.

    Call arguments:
        inputs: `(B, W · S)`, `(B, W · S, D)` or `(B, W, S, D)`.

    Returns:
        `(B · W, S)` or `(B · W, S, D)`.

    Example:

    >>> import numpy as np
    >>> rows = FoldWindows(2)(np.arange(4.0).reshape(1, 4, 1))
    >>> rows.numpy()[:, :, 0].tolist()
    [[0.0, 1.0], [2.0, 3.0]]
    """

    def __init__(self, length: int, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.length = positive("length", length)

    def call(self, inputs: Tensor) -> Tensor:
        return ops.reshape(inputs, self.compute_output_shape(inputs.shape, batch=-1))

    def compute_output_spec(self, inputs: Tensor) -> keras.KerasTensor:
        return keras.KerasTensor(self.compute_output_shape(inputs.shape), dtype=inputs.dtype)

    def compute_output_shape(self, inputs_shape: Shape, batch: int | None = None) -> Shape:
        return (batch, self.length, *inputs_shape[2:][-1:])

    def get_config(self) -> Config:
        return {**super().get_config(), "length": self.length}


@serializable
class UnfoldWindows(keras.layers.Layer):
    """Returns windows to the rows that they are from: the inverse of `FoldWindows`.

    Call arguments:
        inputs: `(B · W, S, D)`.
        like: a tensor with the batch size B.

    Returns:
        `(B, W · S, D)`.

    Example:

    >>> import numpy as np
    >>> tuple(UnfoldWindows()(np.zeros((6, 4, 8)), like=np.zeros((2, 1))).shape)
    (2, 12, 8)
    """

    def call(self, inputs: Tensor, like: Tensor) -> Tensor:
        return ops.reshape(inputs, (ops.shape(like)[0], -1, inputs.shape[-1]))

    def compute_output_shape(self, inputs_shape: Shape, like_shape: Shape) -> Shape:
        return (like_shape[0], None, inputs_shape[-1])
