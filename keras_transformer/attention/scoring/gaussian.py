"""Gaussian scores."""

from __future__ import annotations

import math
from typing import Unpack

import keras
from keras import ops

from keras_transformer.attention.scoring.base import Scoring, grouped_scores
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, LayerOptions, Shape, Tensor


@serializable
class Gaussian(Scoring):
    """Gaussian scores, `-|q - k|² / 2 w²`, with one learned width w for each head.

    Softmax of them is the Nadaraya-Watson estimator. `|q|²` is omitted: it is the same for all keys of a query and does not
    change the softmax.

    Args:
        width: float > 0. Initial w. None for `H^(1/4)`, where `q · k` has the same factor as in `ScaledDot`.

    Call arguments and returns: as for `Dot`.

    Raises:
        ValueError: `width` not above 0.

    Example:

    >>> import numpy as np
    >>> query, keys = np.array([1.0]).reshape(1, 1, 1, 1), np.array([1.0, 3.0]).reshape(1, 2, 1, 1)
    >>> Gaussian(width=1.0)(query, keys).numpy().round(3).ravel().tolist()  # Without -|q|² / 2.
    [0.5, -1.5]

    Reference: Zhang et al., Dive into Deep Learning, arXiv 2106.11342, "Attention Pooling by Similarity"; Tsai et al.,
    Transformer Dissection, arXiv 1908.11775, section 3.1.
    """

    def __init__(self, width: float | None = None, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        if width is not None and width <= 0:
            raise ValueError(f"width must be positive. Received: {width}")
        self.width = width

    def build(self, query_shape: Shape, key_shape: Shape) -> None:
        width = query_shape[3] ** 0.25 if self.width is None else self.width
        initializer = keras.initializers.Constant(math.log(width))
        self.log_width = self.add_weight(name="log_width", shape=(query_shape[2], 1), initializer=initializer)

    def call(self, query: Tensor, key: Tensor) -> Tensor:
        # An extra feature, 1 in queries and -|k|² / 2 in keys, adds the norm of the key within one matrix product.
        norm = -0.5 * ops.sum(ops.square(key), axis=-1, keepdims=True)
        query = ops.concatenate([query, ops.ones_like(query[..., :1])], axis=-1)
        return grouped_scores(query * ops.exp(-2.0 * self.log_width), ops.concatenate([key, norm], axis=-1))

    def get_config(self) -> Config:
        return {**super().get_config(), "width": self.width}
