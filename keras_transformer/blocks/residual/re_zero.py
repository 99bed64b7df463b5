"""ReZero: residual connections with a learned scale, initially zero."""

import keras
from keras import ops

from keras_transformer.blocks.residual.residual import Residual
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Shape, Tensor


@serializable
class ReZeroResidual(Residual):
    """ReZero: `x + α f(x)`, with a learned scalar α that is initially 0, so that a stack starts as the identity.

    Args:
        norm: not used; accepted for the interface of the other schemes.

    Example:

    >>> import numpy as np
    >>> residual = ReZeroResidual()
    >>> residual.build((None, None, 2))
    >>> residual.post(np.array([[[1.0, 3.0]]]), np.array([[[0.0, 2.0]]], "float32")).numpy().tolist()
    [[[1.0, 3.0]]]

    Reference: Bachlechner et al., ReZero is All You Need, arXiv 2003.04887, section 3.
    """

    scale: keras.Variable
    needs_final_norm = False

    def build(self, input_shape: Shape) -> None:
        super().build(input_shape)
        self.scale = self.add_weight(name="scale", shape=(), initializer="zeros")

    def post(self, x: Tensor, y: Tensor, mask: Tensor | None = None, training: bool | None = None) -> Tensor:
        return x + ops.cast(self.scale, y.dtype) * y
