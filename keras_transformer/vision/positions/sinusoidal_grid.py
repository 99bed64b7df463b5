"""Sinusoidal positions of a grid of any size."""

from __future__ import annotations

from typing import Unpack

import keras
import numpy as np
from keras import ops

from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, LayerOptions, Shape, Tensor


@serializable
class SinusoidalGrid(keras.layers.Layer):
    """Sinusoidal position vectors of the pixels of a feature map, which count rows and columns from 0.

        p = [sin(y ω); cos(y ω); sin(x ω); cos(x ω)],   ω_i = W^(-4 i / D),   i = 0, ..., D / 4 - 1

    `SinePositions` are those of DETR, relative to the size of the map.

    Args:
        hidden_dim: int, a multiple of 4. D.
        max_wavelength: float > 0. W. Default 10,000.

    Call arguments:
        inputs: `(B, rows, columns, channels)`, of any size, which may be dynamic: only it counts.

    Returns:
        `(1, rows · columns, D)`.

    Raises:
        ValueError: `hidden_dim` is not a multiple of 4.

    Export: all three formats.

    Example:

    >>> import numpy as np
    >>> np.asarray(SinusoidalGrid(4)(np.zeros((5, 1, 2, 16)))).round(2).tolist()
    [[[0.0, 1.0, 0.0, 1.0], [0.0, 1.0, 0.8399999737739563, 0.5400000214576721]]]

    Reference: Zhao et al., RT-DETR, arXiv 2304.08069, in the order of its published code.
    """

    def __init__(self, hidden_dim: int, max_wavelength: float = 10000.0, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        if not isinstance(hidden_dim, int) or hidden_dim < 4 or hidden_dim % 4:
            raise ValueError(f"hidden_dim must be a multiple of 4. Received: {hidden_dim!r}")
        self.hidden_dim = hidden_dim
        self.max_wavelength = max_wavelength

    def call(self, inputs: Tensor) -> Tensor:
        rows, columns = ops.shape(inputs)[1:3]
        down = ops.expand_dims(self._vectors(rows), 1) + ops.zeros((1, columns, 1), "float32")
        across = ops.expand_dims(self._vectors(columns), 0) + ops.zeros((rows, 1, 1), "float32")
        vectors = ops.concatenate([down, across], axis=-1)
        return ops.cast(ops.reshape(vectors, (1, rows * columns, self.hidden_dim)), self.compute_dtype)

    def _vectors(self, count):
        """`(count, D / 2)`."""
        quarter = self.hidden_dim // 4
        frequencies = (self.max_wavelength ** -(np.arange(quarter) / quarter)).astype("float32")
        angles = ops.expand_dims(ops.cast(ops.arange(count, dtype="int32"), "float32"), 1) * frequencies
        return ops.concatenate([ops.sin(angles), ops.cos(angles)], axis=-1)

    def compute_output_shape(self, inputs_shape: Shape) -> Shape:
        sides = inputs_shape[1:3]
        return (1, None if None in sides else sides[0] * sides[1], self.hidden_dim)

    def compute_output_spec(self, inputs: Tensor) -> keras.KerasTensor:
        return keras.KerasTensor(self.compute_output_shape(inputs.shape), dtype=self.compute_dtype)

    def get_config(self) -> Config:
        return {**super().get_config(), "hidden_dim": self.hidden_dim, "max_wavelength": self.max_wavelength}
