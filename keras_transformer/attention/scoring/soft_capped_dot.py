"""Soft-capped scaled dot-product scores."""

from __future__ import annotations

from typing import Unpack

from keras_transformer.attention.scoring.base import Scoring, soft_cap
from keras_transformer.attention.scoring.scaled_dot import ScaledDot
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, LayerOptions, Tensor


@serializable
class SoftCappedDot(Scoring):
    """Soft-capped scaled dot-product scores, `c · tanh(q · k · scale / c)`, which are within (-c, c).

    Args:
        cap: float > 0. c. Default 50.
        scale: float, or None for `1 / √H`.

    Call arguments and returns: as for `Dot`.

    Raises:
        ValueError: `cap` not above 0.

    Example:

    >>> import numpy as np
    >>> SoftCappedDot(cap=2.0)(np.full((1, 1, 1, 4), 100.0), np.ones((1, 1, 1, 4))).numpy().ravel().tolist()
    [2.0]

    Reference: Gemma Team, Gemma 2, arXiv 2408.00118, section 2 ("logit soft-capping").
    """

    def __init__(self, cap: float = 50.0, scale: float | None = None, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        if not cap > 0:
            raise ValueError(f"cap must be positive. Received: {cap}")
        self.cap = cap
        self.scaled_dot = ScaledDot(scale, dtype=self.dtype_policy)

    def call(self, query: Tensor, key: Tensor) -> Tensor:
        return soft_cap(self.scaled_dot(query, key), self.cap)

    def get_config(self) -> Config:
        return {**super().get_config(), "cap": self.cap, "scale": self.scaled_dot.scale}
