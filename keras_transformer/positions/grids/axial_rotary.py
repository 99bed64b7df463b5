"""Axial rotary position embedding: rotary angles from the row and the column of a patch."""

from __future__ import annotations

import math
from typing import Unpack

import numpy as np
from keras import ops

from keras_transformer.positions.attention_position import AttentionPosition
from keras_transformer.positions.grids.grid_sides import grid_sides
from keras_transformer.positions.rotations.rotary import rotate_pairs
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, LayerOptions, Tensor

# Coordinates are integers in steps of 2^-24, because dtype policies round real inputs of layers, but not integers.
COORDINATE_STEPS = 2**24


@serializable
class AxialRotary(AttentionPosition):
    """Axial rotary position embedding: rotates query and key by the row and the column of each patch of an image.

    A patch whose center has the coordinates `(y, x)`, in [-1, 1] from the top left to the bottom right, turns features i
    and i + H/2 of a head by

        θ_i = 2π y · max_wavelength^(-4i / H)                for i < H/4
        θ_i = 2π x · max_wavelength^(-4(i - H/4) / H)        for H/4 <= i < H/2

    so that images of all sizes have the same range of angles. A token at `(0, 0)` is not rotated, such as a class token.
    Angles are computed in float32 under every dtype policy. H is a multiple of 4; of wider heads, up to three features at
    the end are not rotated.

    Args:
        grid_size: int or pair of ints >= 1: rows and columns of the patches that are numbered, row by row. It has no effect
            on coordinates. Defaults to 14: images of 224 x 224 pixels in patches of 16.
        max_wavelength: float > 0. Defaults to 100.

    Call arguments:
        positions: int `(T,)` or `(B, T)`: numbers of patches; or int `(1 | B, T, 2)`: coordinates y and x in steps of 2^-24,
            as `vision.PatchCoordinates` returns them.

    Returns:
        Rotated queries and keys, of the same shapes.

    Raises:
        ValueError: a side below 1; heads of less than 4 features.

    Example:

    >>> import numpy as np
    >>> x = np.array([1.0, 1.0, 0.0, 0.0]).reshape(1, 1, 1, 4)
    >>> rotated, _ = AxialRotary(grid_size=(1, 8)).rotate(x, x, np.array([3]), np.array([3]))
    >>> np.array(rotated).astype("float64").round(3).ravel().tolist()  # y = 0, x = -1/8
    [1.0, 0.707, 0.0, -0.707]

    Reference: Siméoni et al., DINOv3, arXiv 2508.10104, section 3.2, as in its published code.
    """

    def __init__(
        self, grid_size: int | tuple[int, int] = 14, max_wavelength: float = 100.0, **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(**kwargs)
        self.grid_size = grid_sides(grid_size)
        self.max_wavelength = float(max_wavelength)

    def rotate(
        self, query: Tensor, key: Tensor, query_positions: Tensor, key_positions: Tensor
    ) -> tuple[Tensor, Tensor]:
        return self._rotate(query, query_positions), self._rotate(key, key_positions)

    def _rotate(self, x, positions):
        width = x.shape[-1] // 4 * 4
        if not width:
            raise ValueError(f"AxialRotary needs heads of at least 4 features. Received: {x.shape[-1]}")
        if width == x.shape[-1]:
            return self._rotate_all(x, positions)
        return ops.concatenate([self._rotate_all(x[..., :width], positions), x[..., width:]], axis=-1)

    def _rotate_all(self, x, positions):
        width = x.shape[-1]
        rates = 2 * math.pi * self.max_wavelength ** (-4 * np.arange(width // 4) / width)
        unused = np.zeros_like(rates)
        of_row, of_column = (np.tile(pair, 2).astype("float32") for pair in ([*rates, *unused], [*unused, *rates]))
        down, across = self._coordinates(ops.convert_to_tensor(positions))
        angles = ops.expand_dims(down * of_row + across * of_column, 2)  # (1 | B, T, 1, H)
        return rotate_pairs(x, ops.cos(angles), ops.sin(angles), "halves")

    def _coordinates(self, positions):
        """Returns y and x, float32 `(1 | B, T, 1)` each."""
        if len(positions.shape) == 3:
            real = ops.cast(positions, "float32") / COORDINATE_STEPS
            return real[..., :1], real[..., 1:]
        rows, columns = self.grid_size
        positions = ops.expand_dims(positions, 0) if len(positions.shape) == 1 else positions
        positions = ops.expand_dims(ops.cast(positions, "int32"), -1)
        row = ops.floor_divide(positions, columns)
        return centers(row, rows), centers(positions - row * columns, columns)

    def get_config(self) -> Config:
        return {**super().get_config(), "grid_size": self.grid_size, "max_wavelength": self.max_wavelength}


def centers(indices: Tensor, count: int | Tensor) -> Tensor:
    """Returns the coordinates of the centers of patches along one side, float32 in [-1, 1].

    Args:
        indices: int tensor: which of the patches.
        count: int, or int tensor `()`: the number of patches of the side.
    """
    return (ops.cast(indices, "float32") + 0.5) / ops.cast(count, "float32") * 2.0 - 1.0
