"""A scale and an offset for all channels together."""

from __future__ import annotations

import keras
from keras import ops

from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Shape, Tensor


@serializable
class LearnableAffine(keras.layers.Layer):
    """Learnable affine block: `y = s x + b`, with two learned numbers, at first 1 and 0.

    Call arguments:
        inputs: a tensor of any shape.

    Returns:
        A tensor of that shape.

    Example:

    >>> import numpy as np
    >>> np.asarray(LearnableAffine()(np.array([[2.0, 3.0]]))).tolist()
    [[2.0, 3.0]]

    Reference: Zhang et al., PP-LCNetV2, as in the published code of HGNetV2 in PaddleClas.
    """

    scale: keras.Variable
    bias: keras.Variable

    def build(self, input_shape: Shape) -> None:
        self.scale = self.add_weight(name="scale", shape=(1,), initializer="ones")
        self.bias = self.add_weight(name="bias", shape=(1,), initializer="zeros")

    def call(self, inputs: Tensor) -> Tensor:
        return ops.cast(self.scale, inputs.dtype) * inputs + ops.cast(self.bias, inputs.dtype)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape
