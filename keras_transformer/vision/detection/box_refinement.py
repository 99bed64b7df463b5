"""Boxes that are refined block by block, relative to those before."""

from __future__ import annotations

import keras
from keras import ops

from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import DType, Shape, Tensor

_EPSILON = 1e-5


@serializable
class BoxRefinement(keras.layers.Layer):
    """The box of each query after a block of the decoder: that before it, moved in the domain of logits.

        b' = σ(σ⁻¹(b) + Δ(x))

    Δ has three dense layers; the first two have the width of the queries, and ReLU. The last is zero at first: the box
    stays.

    Call arguments:
        inputs: float `(B, Q, D)`: x, the queries after the block.
        boxes: float `(B, Q, 4)`: b, center, width and height, as shares of the image.

    Returns:
        float `(B, Q, 4)`.

    Example:

    >>> import numpy as np
    >>> boxes = np.array([[[0.5, 0.25, 0.5, 0.125]]], "float32")
    >>> np.asarray(BoxRefinement()(np.ones((1, 1, 8), "float32"), boxes)).round(4).tolist()
    [[[0.5, 0.25, 0.5, 0.125]]]

    Reference: Zhu et al., Deformable DETR, arXiv 2010.04159, section 4.2 (iterative bounding box refinement) and appendix
    A.4.
    """

    def build(self, inputs_shape: Shape, boxes_shape: Shape | None = None) -> None:
        width = inputs_shape[-1]
        self._layers_of_offsets = box_offsets(width, self.dtype_policy)
        for layer in self._layers_of_offsets:
            layer.build((*inputs_shape[:-1], width))

    def call(self, inputs: Tensor, boxes: Tensor) -> Tensor:
        x = inputs
        for layer in self._layers_of_offsets:
            x = layer(x)
        return ops.sigmoid(x + inverse_sigmoid(boxes))

    def compute_output_shape(self, inputs_shape: Shape, boxes_shape: Shape | None = None) -> Shape:
        return (*inputs_shape[:-1], 4)


def box_offsets(width: int, dtype: DType = None, last: str = "zeros") -> list[keras.layers.Layer]:
    """The three dense layers of a box head, "hidden_0", "hidden_1" and "offsets"; `last` initializes the last kernel."""
    hidden = [keras.layers.Dense(width, "relu", dtype=dtype, name=f"hidden_{index}") for index in range(2)]
    return [*hidden, keras.layers.Dense(4, kernel_initializer=last, dtype=dtype, name="offsets")]


def inverse_sigmoid(shares: Tensor) -> Tensor:
    """Logits of numbers from 0 to 1, of which those closer than 1e-5 to either end count as being that close."""
    return ops.log(ops.maximum(shares, _EPSILON) / ops.maximum(1 - shares, _EPSILON))
