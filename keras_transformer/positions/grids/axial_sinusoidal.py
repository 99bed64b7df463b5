"""Sinusoidal position encoding of a grid."""

from __future__ import annotations

from typing import Unpack

import keras
import numpy as np
from keras import ops

from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, LayerOptions, Shape, Tensor


@serializable
class AxialSinusoidal(keras.layers.Layer):
    """Sinusoidal position encoding of a grid: adds that of the column and that of the row of each position.

    `y_p = x_p + [s(p mod w); s(⌊p / w⌋)]`, with w columns and `s(q) = [sin(q ω); cos(q ω)]` of width D/2, where
    `ω_i = max_wavelength^(-4i / D)` for i = 0 .. D/4 - 1.

    Args:
        num_columns: int >= 1. Columns w of the grid. Default 64.
        max_wavelength: float > 0. The largest wavelength divided by 2π. Default 10000.

    Call arguments:
        inputs: float `(B, T, D)`, D a multiple of 4. Row by row: position p is in row p // w.
        positions: int `(T,)` or `(B, T)`, or None for 0 .. T - 1.

    Returns:
        `(B, T, D)`, in the dtype of the layer.

    Raises:
        ValueError: `num_columns` below 1; D not a multiple of 4.

    Example:

    >>> import numpy as np
    >>> layer = AxialSinusoidal(num_columns=2)
    >>> layer(np.zeros((1, 4, 4))).numpy().round(2)[0, 1:3].tolist()
    [[0.8399999737739563, 0.5400000214576721, 0.0, 1.0], [0.0, 1.0, 0.8399999737739563, 0.5400000214576721]]

    Reference: Vaswani et al., arXiv 1706.03762, section 3.5, for each axis, in the order of He et al., Masked Autoencoders,
    arXiv 2111.06377, and Peebles and Xie, DiT, arXiv 2212.09748, as in their published code.
    """

    def __init__(self, num_columns: int = 64, max_wavelength: float = 10000.0, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        if num_columns < 1:
            raise ValueError(f"num_columns must be at least 1. Received: {num_columns}")
        self.num_columns = num_columns
        self.max_wavelength = float(max_wavelength)
        self.supports_masking = True

    def build(self, input_shape: Shape) -> None:
        if input_shape[-1] % 4:
            raise ValueError(f"The width must be a multiple of 4. Received input shape: {input_shape}")

    def call(self, inputs: Tensor, positions: Tensor | None = None) -> Tensor:
        slots = ops.arange(ops.shape(inputs)[1], dtype="int32") if positions is None else positions
        slots = ops.cast(slots, "int32")
        parts = slots % self.num_columns, slots // self.num_columns
        columns, rows = (ops.cast(part, "float32") for part in parts)
        column_rates, row_rates, phases = self._rates_and_phases(inputs.shape[-1])
        angles = ops.expand_dims(columns, -1) * column_rates + ops.expand_dims(rows, -1) * row_rates
        # cos(a) = sin(a + π/2): one sine for all.
        encoding = ops.cast(ops.sin(angles + phases), inputs.dtype)
        return inputs + (ops.expand_dims(encoding, 0) if len(encoding.shape) == 2 else encoding)

    def _rates_and_phases(self, width):
        quarter = width // 4
        rates = np.tile(self.max_wavelength ** -(np.arange(quarter) / quarter), 2)
        phases = np.tile(np.repeat([0.0, np.pi / 2], quarter), 2)
        column_rates, row_rates = np.pad(rates, (0, width // 2)), np.pad(rates, (width // 2, 0))
        return [ops.convert_to_tensor(array, "float32") for array in (column_rates, row_rates, phases)]

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def get_config(self) -> Config:
        return {**super().get_config(), "num_columns": self.num_columns, "max_wavelength": self.max_wavelength}
