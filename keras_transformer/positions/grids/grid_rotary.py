"""Grid rotary position embedding: rotary angles from the whole row and column of a patch, beside tokens without a place."""

from __future__ import annotations

from typing import Unpack

import numpy as np
from keras import ops

from keras_transformer.positions.attention_position import AttentionPosition
from keras_transformer.positions.rotations.rotary import rotate_pairs
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, LayerOptions, Shape, Tensor


@serializable
class GridRotary(AttentionPosition):
    """Grid rotary position embedding: rotates query and key by the row and the column of each patch, counted from 0.

    Of the H features of a head, the first are not rotated, unless `features` are all; the next `rows` are rotated in pairs
    `(2i, 2i + 1)` by `θ_i = row · max_wavelength^(-2i / rows)`, the last `columns` in the same way by the column. Tokens at
    negative positions, such as those of a text, are not rotated. Angles are computed in float32 under every dtype policy.

    Args:
        num_columns: int >= 1. Patches of a row; patches are numbered row by row. Defaults to 14: images of 224 x 224 pixels
            in patches of 16.
        features: pair of even ints >= 0: how many features rows and columns turn, such as (56, 56) of 128 in FLUX.1; None
            (the default) for half of the pairs each.
        max_wavelength: float > 0. Defaults to 10000.

    Call arguments:
        positions: int `(T,)` or `(B, T)`: numbers of patches, or negative.

    Returns:
        Rotated queries and keys, of the same shapes.

    Raises:
        ValueError: `num_columns` below 1; an odd number of features; heads of fewer features.

    Example:

    >>> import numpy as np
    >>> x = np.array([1.0, 0.0, 1.0, 0.0]).reshape(1, 1, 1, 4)
    >>> rotated, _ = GridRotary(num_columns=3, features=(2, 2)).rotate(x, x, np.array([5]), np.array([5]))
    >>> np.array(rotated).astype("float64").round(3).ravel().tolist()  # Row 1, column 2.
    [0.54, 0.841, -0.416, 0.909]

    Reference: the published code of FLUX.1 (Black Forest Labs, 2024), in which `ids` have a first number that is always 0,
    to which the features that are not rotated belong; Su et al., RoFormer, arXiv 2104.09864.
    """

    def __init__(
        self,
        num_columns: int = 14,
        features: tuple[int, int] | None = None,
        max_wavelength: float = 10000.0,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        if num_columns < 1:
            raise ValueError(f"num_columns must be at least 1. Received: {num_columns}")
        if features is not None and (len(features) != 2 or min(features) < 0 or any(each % 2 for each in features)):
            raise ValueError(f"features must be two even numbers of at least 0, or None. Received: {features}")
        self.num_columns = num_columns
        self.features = None if features is None else tuple(features)
        self.max_wavelength = float(max_wavelength)

    def build(self, query_shape: Shape, *shapes: Shape) -> None:
        self._rates(query_shape[-1])  # Raises for heads that are too small.

    def rotate(
        self, query: Tensor, key: Tensor, query_positions: Tensor, key_positions: Tensor
    ) -> tuple[Tensor, Tensor]:
        return self._rotate(query, query_positions), self._rotate(key, key_positions)

    def _rotate(self, x, positions):
        positions = ops.cast(ops.convert_to_tensor(positions), "int32")
        positions = positions[None] if len(positions.shape) == 1 else positions
        # (1 | B, T, 1, 1): negative positions are those of the first patch, whose angles are 0.
        numbers = ops.maximum(positions, 0)[:, :, None, None]
        row = ops.floor_divide(numbers, self.num_columns)
        column = numbers - row * self.num_columns
        of_row, of_column = self._rates(x.shape[-1])
        angles = ops.cast(row, "float32") * of_row + ops.cast(column, "float32") * of_column
        return rotate_pairs(x, ops.cos(angles), ops.sin(angles), "interleaved")

    def _rates(self, size):
        """What each of the features turns by in a step to the next row and to the next column: float32 `(H,)` each."""
        features = (size // 4 * 2, size // 4 * 2) if self.features is None else self.features
        unused = size - sum(features)
        if unused < 0:
            raise ValueError(f"Heads of {size} features are too small for features={self.features} of GridRotary.")
        turned = [np.repeat(self.max_wavelength ** (-np.arange(0, width, 2) / max(width, 1)), 2) for width in features]
        still = [np.zeros(width) for width in (unused, *features)]
        rows, columns = [*still[:1], turned[0], still[2]], [*still[:2], turned[1]]
        return [np.concatenate(parts).astype("float32") for parts in (rows, columns)]

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_columns": self.num_columns,
            "features": self.features,
            "max_wavelength": self.max_wavelength,
        }
