"""Scaled dot-product scores."""

from __future__ import annotations

import math
from typing import Unpack

from keras import ops

from keras_transformer.attention.scoring.base import Scoring, grouped_scores
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, LayerOptions, Tensor


@serializable
class ScaledDot(Scoring):
    """Scaled dot-product scores, `q · k · scale`, by default `q · k / √H`.

    Args:
        scale: float, or None for `1 / √H`.

    Call arguments and returns: as for `Dot`.

    Example:

    >>> import numpy as np
    >>> ScaledDot()(np.ones((1, 1, 1, 4)), np.ones((1, 2, 1, 4))).numpy().ravel().tolist()
    [2.0, 2.0]

    Reference: Vaswani et al., arXiv 1706.03762, equation 1.
    """

    def __init__(self, scale: float | None = None, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.scale = scale

    def call(self, query: Tensor, key: Tensor) -> Tensor:
        return grouped_scores(self.scaled(query), key)  # The query is smaller than the scores.

    def scaled(self, query: Tensor) -> Tensor:
        """Returns queries whose products with keys are the scores."""
        scale = 1.0 / math.sqrt(query.shape[-1]) if self.scale is None else self.scale
        return query * ops.cast(scale, query.dtype)

    def get_config(self) -> Config:
        return {**super().get_config(), "scale": self.scale}
