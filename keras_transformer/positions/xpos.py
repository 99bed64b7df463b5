"""Extrapolatable rotary positions (xPos)."""

from __future__ import annotations

from typing import Any

import numpy as np
from keras import ops

from keras_transformer.positions.attention_position import AttentionPosition
from keras_transformer.positions.distances import rows
from keras_transformer.positions.rotary import check_layout, cos_and_sin, expand_pairs, rotate_pairs
from keras_transformer.positions.rotary_scaling import rotary_rates
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, Tensor


@serializable
class XPos(AttentionPosition):
    """Rotary positions whose scores fade with distance: queries grow with position, keys shrink alike.

    Pair i of a query at position p is turned as by `Rotary` and multiplied by `ζ_i^((p - center) / scale_base)`, and that of
    a key divided by it, with `ζ_i = (2i / H + 0.4) / 1.4`. In their product `ζ_i^((p - q) / scale_base)` is left, for any
    center: it only keeps the numbers small. It is a constant, and not the middle of a sequence, so that keys in a cache stay
    as they are and reading whole, in chunks and token by token is the same. For causal attention: a key ahead is scaled up.

    Args:
        max_wavelength: float > 0. Default 10000.
        scale_base: float > 0. The larger, the slower scores fade. Default 512.
        center: int, or None for `4 scale_base`. Best in the middle of the longest sequence: a factor is at most
            `3.5^(|p - center| / scale_base)`, and a half-precision number ends at 65504.
        layout: "pairs" couples features 2i and 2i + 1 (the paper); "halves" couples i and i + H/2.

    Returns:
        From `rotate`: queries and keys as they were shaped.

    Raises:
        ValueError: unknown layout; `scale_base` not positive; odd head width.

    Example:

    >>> import numpy as np
    >>> x, places = np.ones((1, 2, 1, 4)), np.array([100, 612])
    >>> query, key = XPos(center=100).rotate(x, x, places, places)
    >>> float(np.round(np.linalg.norm(query[0, 1, 0, :2]) / np.linalg.norm(query[0, 0, 0, :2]), 4))  # 0.4 / 1.4
    0.2857

    Reference: Sun et al., A Length-Extrapolatable Transformer, arXiv 2212.10554, algorithm 1. There the center is the middle
    of the sequence at hand. Its blockwise causal attention is a mechanism's business: `mechanism="local"`.
    """

    def __init__(
        self,
        max_wavelength: float = 10000.0,
        scale_base: float = 512.0,
        center: int | None = None,
        layout: str = "pairs",
        **kwargs: Any,
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
            raise ValueError(f"xPos couples features: heads must be of even width. Received: {width}")
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
