"""Sinusoidal positions in two dimensions."""

from __future__ import annotations

import math
from typing import Unpack

import keras
import numpy as np
from keras import ops

from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, LayerOptions, Shape, Tensor

_EPSILON = 1e-6


@serializable
class SinePositions(keras.layers.Layer):
    """Sinusoidal position vectors of the pixels of a feature map: half of each for its row, half for its column.

        p[2i] = sin(2π y / (h W^(2i / d))), p[2i + 1] = cos(2π y / (h W^(2i / d))), d = D / 2

    for the row y = 1, ..., h, and the same for the column behind it. With a mask, rows and columns count the real pixels.

    Args:
        hidden_dim: int, a multiple of 4. D.
        max_wavelength: float > 0. W. Default 10,000.

    Call arguments:
        inputs: `(B, rows, columns, channels)`, of any size, which may be dynamic: only it counts.
        mask: boolean `(B, rows, columns)`, True = a real pixel; None: all are.

    Returns:
        `(1, rows · columns, D)`; with a mask `(B, rows · columns, D)`.

    Raises:
        ValueError: `hidden_dim` is not a multiple of 4.

    Export: all three formats.

    Example:

    >>> import numpy as np
    >>> tuple(SinePositions(8)(np.zeros((5, 2, 3, 16))).shape)
    (1, 6, 8)

    Reference: Carion et al., DETR, arXiv 2005.12872, section 3.2 and appendix A.4, after Parmar et al., arXiv 1802.05751;
    the normalization to 2π as in the published code.
    """

    def __init__(self, hidden_dim: int, max_wavelength: float = 10000.0, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        if not isinstance(hidden_dim, int) or hidden_dim < 4 or hidden_dim % 4:
            raise ValueError(f"hidden_dim must be a multiple of 4. Received: {hidden_dim!r}")
        self.hidden_dim = hidden_dim
        self.max_wavelength = max_wavelength

    def call(self, inputs: Tensor, mask: Tensor | None = None) -> Tensor:
        rows, columns = ops.shape(inputs)[1:3]
        if mask is None:
            mask = ops.ones((1, rows, columns), "float32")
        mask, sides = ops.cast(mask, "float32"), []
        for axis in (1, 2):
            count = ops.cumsum(mask, axis=axis)
            last = count[:, -1:] if axis == 1 else count[:, :, -1:]
            sides.append(self._vectors(count / (last + _EPSILON) * (2 * math.pi)))
        vectors = ops.concatenate(sides, axis=-1)
        return ops.cast(ops.reshape(vectors, (-1, rows * columns, self.hidden_dim)), self.compute_dtype)

    def _vectors(self, angles):
        """`(B, rows, columns, D / 2)`: sine and cosine in turn."""
        width = self.hidden_dim // 2
        index = np.arange(width)
        frequencies = (self.max_wavelength ** (-2.0 * (index // 2) / width)).astype("float32")
        is_cosine = (index % 2).astype("float32")
        angles = ops.expand_dims(angles, -1) * frequencies
        return ops.sin(angles) * (1 - is_cosine) + ops.cos(angles) * is_cosine

    def compute_output_shape(self, inputs_shape: Shape, mask_shape: Shape | None = None) -> Shape:
        sides = inputs_shape[1:3]
        length = None if None in sides else sides[0] * sides[1]
        return (1 if mask_shape is None else inputs_shape[0], length, self.hidden_dim)

    def compute_output_spec(self, inputs: Tensor, mask: Tensor | None = None) -> keras.KerasTensor:
        shape = self.compute_output_shape(inputs.shape, None if mask is None else mask.shape)
        return keras.KerasTensor(shape, dtype=self.compute_dtype)

    def get_config(self) -> Config:
        return {**super().get_config(), "hidden_dim": self.hidden_dim, "max_wavelength": self.max_wavelength}
