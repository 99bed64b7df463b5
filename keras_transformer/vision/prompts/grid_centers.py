"""Centers of the cells of a feature map."""

from __future__ import annotations

import keras
import numpy as np
from keras import ops

from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Shape, Tensor


@serializable
class GridCenters(keras.layers.Layer):
    """The centers of the cells of a feature map, as shares of its width and height.

    Call arguments:
        inputs: `(B, rows, columns, D)`: only its size counts, which is static.

    Returns:
        float `(1, rows · columns, 2)`: x and y, row by row.

    Raises:
        ValueError: the size is dynamic.

    Example:

    >>> import numpy as np
    >>> np.asarray(GridCenters()(np.zeros((5, 1, 2, 8)))).tolist()
    [[[0.25, 0.5], [0.75, 0.5]]]
    """

    def build(self, input_shape: Shape) -> None:
        if None in input_shape[1:3]:
            raise ValueError(f"{self.name} takes feature maps of a static size. Received shape: {tuple(input_shape)}")

    def call(self, inputs: Tensor) -> Tensor:
        rows, columns = inputs.shape[1:3]
        y, x = ((np.arange(count) + 0.5) / count for count in (rows, columns))
        centers = np.stack(np.broadcast_arrays(x[None], y[:, None]), axis=-1).reshape(1, -1, 2)
        return ops.convert_to_tensor(centers, dtype="float32")

    def compute_output_spec(self, inputs: Tensor) -> keras.KerasTensor:
        return keras.KerasTensor(self.compute_output_shape(inputs.shape), dtype="float32")

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        rows, columns = input_shape[1:3]
        return (1, None if None in (rows, columns) else rows * columns, 2)
