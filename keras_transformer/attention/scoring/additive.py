"""Additive scores."""

from __future__ import annotations

from typing import Unpack

import keras
from keras import ops

from keras_transformer.attention.scoring.base import Scoring
from keras_transformer.backend.kernels.shared_matmul import shared_matmul
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, Initializer, LayerOptions, Shape, Tensor


@serializable
class Additive(Scoring):
    """Additive scores, `vᵀ tanh(W q + U k)`, with W, U and v for each head. Query and key heads may differ in width.

    Memory: a tensor `(B, N, T · S, units)`, since the tanh of a sum is not a matrix product.

    Args:
        units: int, or None for the width of the query head. The width of the hidden layer.
        kernel_initializer: of W, U and v.

    Call arguments and returns: as for `Dot`.

    Example:

    >>> import numpy as np
    >>> layer = Additive(units=2, kernel_initializer="ones")
    >>> layer(np.full((1, 1, 1, 1), 20.0), np.zeros((1, 1, 1, 1))).numpy().ravel().tolist()
    [2.0]

    Reference: Bahdanau et al., arXiv 1409.0473, appendix A.1.2. There, W and U are the projections of the decoder state
    and of the annotations; inside `MultiHeadAttention` they come after its own projections.
    """

    def __init__(
        self,
        units: int | None = None,
        kernel_initializer: Initializer = "glorot_uniform",
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.units = units
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    def build(self, query_shape: Shape, key_shape: Shape) -> None:
        heads, units = query_shape[2], self.units or query_shape[3]

        def weight(name: str, *shape: int) -> keras.Variable:
            initializer = keras.initializers.get(self.kernel_initializer)
            return self.add_weight(name=name, shape=(heads, *shape), initializer=initializer)

        self.query_kernel = weight("query_kernel", query_shape[3], units)
        self.key_kernel = weight("key_kernel", key_shape[3], units)
        self.score_kernel = weight("score_kernel", units, 1)

    def call(self, query: Tensor, key: Tensor) -> Tensor:
        heads = query.shape[2]
        if key.shape[2] != heads:
            key = ops.repeat(key, heads // key.shape[2], axis=2)
        return self.score(query, self.hidden_keys(key))

    def hidden_keys(self, key: Tensor) -> Tensor:
        """Returns `U k`, `(B, N, S, units)`, which is shared by all queries of a step-by-step decoder."""
        return shared_matmul(ops.transpose(key, (0, 2, 1, 3)), self.key_kernel)

    def score(self, query: Tensor, hidden_keys: Tensor) -> Tensor:
        """Returns the scores of queries and the result of `hidden_keys`."""
        heads, units = query.shape[2], self.score_kernel.shape[1]
        length, key_length = ops.shape(query)[1], ops.shape(hidden_keys)[2]
        hidden = shared_matmul(ops.transpose(query, (0, 2, 1, 3)), self.query_kernel)
        query = ops.reshape(hidden, (-1, length, 1, units))
        key = ops.reshape(hidden_keys, (-1, 1, key_length, units))
        # (B, N, T · S, U): some TFLite delegates support tensors of rank 4 at most.
        hidden = ops.reshape(ops.tanh(query + key), (-1, heads, length * key_length, units))
        return ops.reshape(shared_matmul(hidden, self.score_kernel), (-1, heads, length, key_length))

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "units": self.units,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }
