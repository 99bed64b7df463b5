"""Extrapolatable position embedding (xPos)."""

from __future__ import annotations

from typing import Unpack

import numpy as np
from keras import ops

from keras_transformer.positions.attention_position import AttentionPosition
from keras_transformer.positions.relative.distances import rows
from keras_transformer.positions.rotations.rotary import check_layout, cos_and_sin, expand_pairs, rotate_pairs
from keras_transformer.positions.rotations.rotary_scaling import rotary_rates
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, LayerOptions, Tensor


@serializable
class XPos(AttentionPosition):
    """xPos: rotary position embedding with scores that decay with distance.

    Pair i of a query at position p is rotated as by `Rotary` and multiplied by `ζ_i^((p - center) / scale_base)`; that of a
    key is divided by it, with `ζ_i = (2i / H + 0.4) / 1.4`. The factor of their product is `ζ_i^((p - q) / scale_base)` for
    any center, which only keeps the numbers small. The center is constant, not the middle of a sequence, so that cached
    keys do not change. For causal attention only: scores of later keys would grow.

    Args:
        max_wavelength: float > 0. Defaults to 10000.
        scale_base: float > 0. Larger values make scores decay more slowly. Defaults to 512.
        center: int, or None for `4 scale_base`. Best at the middle of the longest sequence: factors are at most
            `3.5^(|p - center| / scale_base)`, and the maximum in half precision is 65504.
        layout: "pairs" rotates features 2i and 2i + 1 (the paper); "halves" rotates i and i + H/2.

    Returns:
        From `rotate`: queries and keys, with the same shapes.

    Raises:
        ValueError: unknown layout; `scale_base` not positive; odd head width.

    Example:

    >>> import numpy as np
    >>> x, positions = np.ones((1, 2, 1, 4)), np.array([100, 612])
    >>> query, key = XPos(center=100).rotate(x, x, positions, positions)
    >>> float(np.round(np.linalg.norm(query[0, 1, 0, :2]) / np.linalg.norm(query[0, 0, 0, :2]), 4))  # 0.4 / 1.4
    0.2857

    Reference: Sun et al., A Length-Extrapolatable Transformer, arXiv 2212.10554, algorithm 1. Deviation: the paper centers
    at the middle of the current sequence. Its blockwise causal attention is `mechanism="local"`.
    """

    def __init__(
        self,
        max_wavelength: float = 10000.0,
        scale_base: float = 512.0,
        center: int | None = None,
        layout: str = "pairs",
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        check_layout(layout)
        if not scale_base > 0:
            raise ValueError(f"scale_base must be positive. Received: {scale_base}")
        self.max_wavelength = float(max_wavelength)
        self.scale_base = float(scale_base)
        self.center = round(4 * scale_base) if center is None else center
        self.layout = layout

    def rotate(
        self, query: Tensor, key: Tensor, query_positions: Tensor, key_positions: Tensor
    ) -> tuple[Tensor, Tensor]:
        return self._rotate(query, query_positions, 1.0), self._rotate(key, key_positions, -1.0)

    def _rotate(self, x, positions, sign):
        width = x.shape[-1]
        if width % 2:
            raise ValueError(f"xPos rotates pairs of features: the head width must be even. Received: {width}")
        cos, sin = cos_and_sin(positions, rotary_rates(width, self.max_wavelength), self.layout)
        growth = np.log((np.arange(0, width, 2) / width + 0.4) / 1.4) / self.scale_base
        growth = expand_pairs(sign * growth, self.layout).astype("float32")
        steps = ops.cast(rows(positions) - self.center, "float32")
        scale = ops.exp(ops.expand_dims(ops.expand_dims(steps, -1), -1) * growth)  # (1 | B, T, 1, H)
        return rotate_pairs(x, cos * scale, sin * scale, self.layout)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "max_wavelength": self.max_wavelength,
            "scale_base": self.scale_base,
            "center": self.center,
            "layout": self.layout,
        }
