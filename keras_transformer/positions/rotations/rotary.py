"""Rotary position embedding (RoPE)."""

from __future__ import annotations

from typing import Unpack

import keras
import numpy as np
from keras import ops

from keras_transformer.backend.compilation.xla import is_unfused
from keras_transformer.backend.devices.split_rows import mesh_that_splits_rows
from keras_transformer.positions.attention_position import AttentionPosition
from keras_transformer.positions.rotations.length_scaling import DynamicNTKScaling, LongRoPEScaling
from keras_transformer.positions.rotations.rotary_scaling import (
    LinearScaling,
    Llama3Scaling,
    NTKScaling,
    RotaryScaling,
    YaRNScaling,
    rotary_rates,
)
from keras_transformer.utils.serialization import resolve, serializable
from keras_transformer.utils.types import Config, LayerOptions, Shape, Tensor

_LAYOUTS = ("pairs", "halves")

ROTARY_SCALINGS: dict[str, type[RotaryScaling]] = {
    "linear": LinearScaling,
    "ntk": NTKScaling,
    "dynamic_ntk": DynamicNTKScaling,
    "yarn": YaRNScaling,
    "llama3": Llama3Scaling,
    "longrope": LongRoPEScaling,
}


@serializable
class Rotary(AttentionPosition):
    """Rotary position embedding (RoPE): rotates query and key, so that their product depends only on the distance.

    Each pair of features `(a, b)` at position p becomes `(a cos θ - b sin θ, a sin θ + b cos θ)` with
    `θ = p · max_wavelength^(-2i / H)` for pair i. `pairs` rotates features 2i and 2i + 1 (the paper); `halves` rotates
    i and i + H/2 (Llama). Angles are computed in float32 under every dtype policy.

    Args:
        max_wavelength: float > 0. Defaults to 10000.
        layout: "pairs" or "halves".
        rotary_dim: even int, or None for the whole head. Only the first `rotary_dim` features are rotated.
        scaling: None, an instance, or a name in `ROTARY_SCALINGS` ("linear", "ntk", "dynamic_ntk", "yarn", "llama3",
            "longrope"): scaling of the angles for sequences longer than those of training.
        max_sequence_length: int, or None for no limit. The maximum length for generation; it does not change the
            computation.
        rotate_values: bool. Whether `MultiHeadAttention` rotates values as keys. Then the context depends on the absolute
            positions. Other layers, and mechanisms that rotate by themselves, raise `ValueError`.

    Call arguments:
        inputs: float `(B, T, N, H)`.
        positions: int `(T,)` or `(B, T)`, or None for 0 .. T - 1.

    Returns:
        `(B, T, N, H)`.

    Raises:
        ValueError: unknown layout; odd `rotary_dim` or odd head width; `rotary_dim` above the head width; `rotate_values` in
            a layer that does not rotate values.

    Example:

    >>> import numpy as np
    >>> x = np.array([1.0, 0.0]).reshape(1, 1, 1, 2)
    >>> Rotary()(x, positions=[1]).numpy().round(3).ravel().tolist()
    [0.5400000214576721, 0.8410000205039978]

    Reference: Su et al., RoFormer, arXiv 2104.09864, equation 34. `halves`, `rotary_dim` and `scaling` are not in the paper,
    and `rotate_values` is only in its code.
    """

    def __init__(
        self,
        max_wavelength: float = 10000.0,
        layout: str = "pairs",
        rotary_dim: int | None = None,
        scaling: str | Config | RotaryScaling | None = None,
        max_sequence_length: int | None = None,
        rotate_values: bool = False,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        check_layout(layout)
        if rotary_dim is not None and (rotary_dim < 2 or rotary_dim % 2):
            raise ValueError(f"rotary_dim must be a positive even integer. Received: {rotary_dim}")
        self.max_wavelength = float(max_wavelength)
        self.layout = layout
        self.rotary_dim = rotary_dim
        self.scaling = resolve(scaling, ROTARY_SCALINGS, RotaryScaling, argument="scaling")
        self.max_sequence_length = max_sequence_length
        self.rotate_values = rotate_values

    def call(self, inputs: Tensor, positions: Tensor | None = None) -> Tensor:
        if positions is None:
            positions = ops.arange(ops.shape(inputs)[1], dtype="int32")
        return self._rotate(inputs, positions)

    def rotate(
        self, query: Tensor, key: Tensor, query_positions: Tensor, key_positions: Tensor
    ) -> tuple[Tensor, Tensor]:
        if self.rotate_values:
            raise ValueError(
                f"{self.name!r} has rotate_values=True, which only MultiHeadAttention supports, with mechanisms that do not "
                "rotate by themselves."
            )
        return self._rotate(query, query_positions), self._rotate(key, key_positions)

    def rotate_all(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        query_positions: Tensor,
        key_positions: Tensor,
        training: bool | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        query, key = (self._rotate(*each, training) for each in ((query, query_positions), (key, key_positions)))
        return query, key, self._rotate(value, key_positions, training) if self.rotate_values else value

    def _rotate(self, x, positions, training=None):
        width = self.rotary_dim or x.shape[-1]
        if width % 2 or width > x.shape[-1]:
            raise ValueError(f"Cannot rotate {width} features of heads of width {x.shape[-1]}.")
        if width == x.shape[-1]:
            return self._rotate_features(x, positions, training)
        splits = training and is_unfused()
        rotated, rest = ops.split(x, [width], axis=-1) if splits else (x[..., :width], x[..., width:])
        return ops.concatenate([self._rotate_features(rotated, positions, training), rest], axis=-1)

    def _rotate_features(self, x, positions, training):
        width, magnitude, stretch = x.shape[-1], 1.0, None
        if self.scaling is None:
            rates = rotary_rates(width, self.max_wavelength)
        else:
            rates, magnitude = self.scaling.rates(width, self.max_wavelength), self.scaling.magnitude
            length = ops.max(ops.cast(positions, "int32"), axis=-1, keepdims=True) + 1
            stretch = self.scaling.stretch(length, width)
        cos, sin = cos_and_sin(positions, rates, self.layout, stretch)
        if magnitude != 1.0:
            cos, sin = cos * magnitude, sin * magnitude
        return rotate_pairs(x, cos, sin, self.layout, training)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "max_wavelength": self.max_wavelength,
            "layout": self.layout,
            "rotary_dim": self.rotary_dim,
            "scaling": None if self.scaling is None else keras.saving.serialize_keras_object(self.scaling),
            "max_sequence_length": self.max_sequence_length,
            "rotate_values": self.rotate_values,
        }


def check_layout(layout: str) -> None:
    """Raises `ValueError` for an unknown layout."""
    if layout not in _LAYOUTS:
        raise ValueError(f"layout must be one of {_LAYOUTS}. Received: {layout!r}")


def cos_and_sin(
    positions: Tensor, rates: np.ndarray, layout: str, stretch: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Returns cosine and sine of the angle of each feature, float32 `(1 | B, T, 1, H)` each.

    Args:
        positions: int `(T,)` or `(B, T)`.
        rates: float64 array `(H / 2,)`: angle per position of each pair.
        layout: "pairs" or "halves".
        stretch: float32 `(1, H / 2)` or `(B, 1, H / 2)`: factors of the rates; None for none.
    """
    angles = ops.expand_dims(ops.cast(positions, "float32"), -1) * expand_pairs(rates, layout).astype("float32")
    if stretch is not None:
        repeated = ops.repeat(stretch, 2, axis=-1) if layout == "pairs" else ops.concatenate([stretch, stretch], -1)
        angles = angles * repeated
    angles = ops.expand_dims(angles, 0) if len(angles.shape) == 2 else angles
    angles = ops.expand_dims(angles, 2)
    return ops.cos(angles), ops.sin(angles)


def expand_pairs(values: Tensor, layout: str) -> np.ndarray:
    """Expands an array `(H / 2,)` with a value for each pair to `(H,)`, a value for each feature."""
    return np.repeat(values, 2) if layout == "pairs" else np.tile(values, 2)


def rotate_pairs(x: Tensor, cos: Tensor, sin: Tensor, layout: str, training: bool | None = None) -> Tensor:
    """Rotates `(B, T, N, H)`: each pair `(a, b)` becomes `(a cos θ - b sin θ, a sin θ + b cos θ)`.

    In training without XLA halves are split and joined: the gradient of a split is a join, that of a slice is filled with
    zeros. Graphs for inference have the slices, which converters know.
    """
    cos, sin = ops.cast(cos, x.dtype), ops.cast(sin, x.dtype)
    if not (training and layout == "halves" and is_unfused()):
        return x * cos + _rotate_half(x, layout) * sin
    (a, b), (cos_a, cos_b), (sin_a, sin_b) = (ops.split(each, 2, axis=-1) for each in (x, cos, sin))
    return ops.concatenate([a * cos_a - b * sin_a, b * cos_b + a * sin_b], axis=-1)


def _rotate_half(x, layout):
    """Rotates by a quarter turn: each pair `(a, b)` becomes `(-b, a)`."""
    width = x.shape[-1]
    if layout == "halves":
        first, second = x[..., : width // 2], x[..., width // 2 :]
        return ops.concatenate([-second, first], axis=-1)
    # A product with a constant keeps rank 4 (mobile delegates do not support rank 5) and needs no gather.
    quarter = np.kron(np.eye(width // 2), np.array([[0.0, 1.0], [-1.0, 0.0]]))
    # Rank 2: in a loop, XLA has no gradient for Keras's product of rank 4 with a matrix.
    quarter = ops.convert_to_tensor(quarter, x.dtype)
    if mesh_that_splits_rows() is not None:  # The tokens of a row are on several devices, a matrix of all would not be.
        return ops.matmul(x, quarter)
    rotated = ops.matmul(ops.reshape(x, (-1, width)), quarter)
    return ops.reshape(rotated, (-1, *ops.shape(x)[1:]))
