"""Base class of mechanisms that compute softmax attention to a selection of keys."""

from __future__ import annotations

from typing import Unpack

import keras

from keras_transformer.attention.mechanism import Mechanism
from keras_transformer.attention.mechanisms.softmax import SoftmaxAttention
from keras_transformer.utils.serialization import serialize
from keras_transformer.utils.types import Config, LayerOptions, Shape


class SoftmaxBasedMechanism(Mechanism):
    """Base class of mechanisms that apply `softmax`, a `SoftmaxAttention`, to selected or transformed keys.

    Args:
        scoring: a name in `SCORINGS`, or an instance.
        dropout: float in [0, 1). Dropout rate of the attention weights.
        seed: int or None. Seed of the dropout.
    """

    def __init__(
        self,
        scoring: str | Config | keras.layers.Layer = "scaled_dot",
        dropout: float = 0.0,
        seed: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.dropout = dropout
        self.seed = seed
        self.softmax = SoftmaxAttention(scoring, dropout, seed=seed, dtype=self.dtype_policy, name="softmax")

    def build(self, query_shape: Shape, key_shape: Shape, value_shape: Shape) -> None:
        self.softmax.build(query_shape, key_shape, value_shape)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "scoring": serialize(self.softmax.scoring),
            "dropout": self.dropout,
            "seed": self.seed,
        }
