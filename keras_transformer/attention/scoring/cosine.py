"""Cosine scores."""

from __future__ import annotations

import math
from typing import Unpack

import keras
from keras import ops

from keras_transformer.attention.scoring.base import Scoring, grouped_scores
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, LayerOptions, Shape, Tensor


@serializable
class Cosine(Scoring):
    """Cosine scores, `q · k / (|q| |k|) / τ`, with one learned temperature τ for each head.

    Args:
        temperature: float > 0. Initial τ. Default 0.1.
        epsilon: float. Lower bound of the norms.

    Call arguments and returns: as for `Dot`.

    Raises:
        ValueError: `temperature` not above 0.

    Example:

    >>> import numpy as np
    >>> Cosine(temperature=1.0)(np.full((1, 1, 1, 4), 3.0), np.ones((1, 1, 1, 4))).numpy().round(3).ravel().tolist()
    [1.0]

    Reference: Liu et al., Swin Transformer V2, arXiv 2111.09883, equation 2. Deviation: τ is `exp` of the weight, which
    keeps it positive; the paper also keeps it above 0.01.
    """

    def __init__(self, temperature: float = 0.1, epsilon: float = 1e-6, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        if temperature <= 0:
            raise ValueError(f"temperature must be positive. Received: {temperature}")
        self.temperature = temperature
        self.epsilon = epsilon

    def build(self, query_shape: Shape, key_shape: Shape) -> None:
        self.log_temperature = self.add_weight(
            name="log_temperature",
            shape=(query_shape[2], 1),
            initializer=keras.initializers.Constant(math.log(self.temperature)),
        )

    def call(self, query: Tensor, key: Tensor) -> Tensor:
        query = self._unit(query) * ops.exp(-self.log_temperature)
        return grouped_scores(query, self._unit(key))

    def _unit(self, x: Tensor) -> Tensor:
        wide = ops.cast(x, "float32")  # Squares and inverse roots may be outside the range of float16.
        squared = ops.sum(ops.square(wide), axis=-1, keepdims=True)
        return ops.cast(wide * ops.rsqrt(ops.maximum(squared, self.epsilon**2)), x.dtype)

    def get_config(self) -> Config:
        return {**super().get_config(), "temperature": self.temperature, "epsilon": self.epsilon}
