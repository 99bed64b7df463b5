"""Dot-product scores."""

from __future__ import annotations

from keras_transformer.attention.scoring.base import Scoring, grouped_scores
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Tensor


@serializable
class Dot(Scoring):
    """Dot-product scores, `q · k`.

    Call arguments:
        query: float `(B, T, N, H)`.
        key: float `(B, S, K, H)`.

    Returns:
        float `(B, N, T, S)`.

    Example:

    >>> import numpy as np
    >>> query, key = np.array([[1.0, 2.0]]).reshape(1, 1, 1, 2), np.array([[3.0, 0.0], [1.0, 1.0]]).reshape(1, 2, 1, 2)
    >>> Dot()(query, key).numpy().ravel().tolist()
    [3.0, 3.0]

    Reference: Luong et al., arXiv 1508.04025, section 3.1, "dot".
    """

    def call(self, query: Tensor, key: Tensor) -> Tensor:
        return grouped_scores(query, key)
