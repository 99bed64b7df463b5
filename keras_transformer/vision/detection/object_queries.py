"""The object queries of DETR."""

from __future__ import annotations

from typing import Unpack

import keras
from keras import ops

from keras_transformer.attention.arguments import positive
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, LayerOptions, Shape, Tensor


@serializable
class ObjectQueries(keras.layers.Layer):
    """Learned position vectors of the object queries of a decoder, one for each object that an image may have.

    Args:
        num_queries: int >= 1. Q. Default 100.

    Call arguments:
        inputs: float `(B, T, D)`: only its width and the size of the batch count.

    Returns:
        `(B, Q, D)`: the vectors, for each row of the batch.

    Raises:
        ValueError: `num_queries` below 1.

    Example:

    >>> import numpy as np
    >>> tuple(ObjectQueries(5)(np.zeros((2, 12, 8))).shape)
    (2, 5, 8)

    Reference: Carion et al., DETR, arXiv 2005.12872, section 3.2.
    """

    embeddings: keras.Variable

    def __init__(self, num_queries: int = 100, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.num_queries = positive("num_queries", num_queries)

    def build(self, input_shape: Shape) -> None:
        self.embeddings = self.add_weight(
            name="embeddings",
            shape=(self.num_queries, input_shape[-1]),
            initializer=keras.initializers.RandomNormal(stddev=1.0),
        )

    def call(self, inputs: Tensor) -> Tensor:
        # A sum instead of a broadcast, which TFLite's delegates do not support.
        return ops.expand_dims(ops.cast(self.embeddings, inputs.dtype), 0) + ops.zeros_like(inputs[:, :1])

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (input_shape[0], self.num_queries, input_shape[-1])

    def get_config(self) -> Config:
        return {**super().get_config(), "num_queries": self.num_queries}
