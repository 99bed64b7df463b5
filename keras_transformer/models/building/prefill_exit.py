"""Prefill exit: the layer after which a prompt needs only its last token."""

from __future__ import annotations

from typing import Unpack

import keras
from keras import ops

from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, LayerOptions, Shape, Tensor


@serializable
class PrefillExit(keras.layers.Layer):
    """Identity that, during prefill, keeps only the last real token of each row.

    Use it before layers without a cache, which need only the last token of a prompt. It has no effect in training and in
    decoding steps; during prefill `Stepwise` calls `last` instead.

    Call arguments:
        inputs: float `(B, T, D)`.

    Returns:
        `(B, T, D)`, unchanged.

    Example:

    >>> import numpy as np
    >>> x = np.arange(6.0).reshape(2, 3, 1)
    >>> PrefillExit().last(x, lengths=np.array([3, 1])).numpy().ravel().tolist()
    [2.0, 3.0]

    Reference: Sun et al., You Only Cache Once, arXiv 2405.05254, section 2.3.
    """

    def __init__(self, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True

    def call(self, inputs: Tensor) -> Tensor:
        return inputs

    def last(self, inputs: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Returns the last real token of each row, `(B, 1, D)`.

        Args:
            inputs: float `(B, T, D)`.
            lengths: int32 `(B,)`: how many tokens of each row are real; None for all.
        """
        if lengths is None:
            return inputs[:, -1:]
        positions = ops.reshape(ops.convert_to_tensor(lengths), (-1, 1, 1)) - 1
        return ops.take_along_axis(ops.convert_to_tensor(inputs), positions, axis=1)

    def compute_output_shape(self, inputs_shape: Shape) -> Shape:
        return inputs_shape

    def get_config(self) -> Config:
        return super().get_config()
