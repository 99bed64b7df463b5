"""Bilinear scores."""

from __future__ import annotations

from typing import Unpack

import keras
from keras import ops

from keras_transformer.attention.scoring.base import Scoring, grouped_scores
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, Initializer, LayerOptions, Shape, Tensor


@serializable
class Bilinear(Scoring):
    """Bilinear scores, `qᵀ M k`, with one M for each head; query and key heads may differ in width.

    Args:
        kernel_initializer: of M, `(N, H_query, H_key)`.

    Call arguments and returns: as for `Dot`.

    Example:

    >>> import numpy as np
    >>> Bilinear(kernel_initializer="ones")(np.ones((1, 1, 1, 2)), np.ones((1, 1, 1, 3))).numpy().ravel().tolist()
    [6.0]

    Reference: Luong et al., arXiv 1508.04025, section 3.1, "general".
    """

    def __init__(self, kernel_initializer: Initializer = "glorot_uniform", **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    def build(self, query_shape: Shape, key_shape: Shape) -> None:
        self.kernel = self.add_weight(
            name="kernel",
            shape=(query_shape[2], query_shape[3], key_shape[3]),
            initializer=self.kernel_initializer,
        )

    def call(self, query: Tensor, key: Tensor) -> Tensor:
        return grouped_scores(ops.einsum("btnq,nqk->btnk", query, self.kernel), key)

    def get_config(self) -> Config:
        return {**super().get_config(), "kernel_initializer": keras.initializers.serialize(self.kernel_initializer)}
