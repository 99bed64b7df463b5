"""Relative positions among keys and values."""

from __future__ import annotations

import math
from typing import Any

import keras
from keras import ops

from keras_transformer.backend.shared_matmul import shared_matmul
from keras_transformer.positions.attention_position import AttentionPosition
from keras_transformer.positions.distances import distances
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, Initializer, Shape, Tensor


@serializable
class ShawRelative(AttentionPosition):
    """Adds a learned vector for each distance to keys and to values: `q_i · (k_j + a^K_d) scale`, `Σ_j w_ij (v_j + a^V_d)`.

    `d = clip(j - i, -max_distance, max_distance)`, and the vectors are the same for all heads. No tensor holds a vector for
    each pair: a query meets each distance once, `(T, 2 max_distance + 1)`, and pairs read the numbers; weights are summed
    by distance before they meet the vectors. Beyond the attention itself, time and memory grow with `T · S`, and
    `T · max_distance · H`.

    Args:
        max_distance: int >= 1. Default 16. Keys farther away share the vector of this distance.
        use_values: bool. Whether values get vectors too.
        scale: float, or None for `1 / √H`: that of the scoring function.
        initializer: of the vectors, `(2 max_distance + 1, H)` and `(2 max_distance + 1, H_value)`.

    Returns:
        A bias, float32 `(B, N, T, S)`, and a term of the context, `(B, T, N, H_value)`.

    Raises:
        ValueError: `max_distance` below 1; in a mechanism that takes no bias, or has no weights to add values by.

    Example:

    >>> import numpy as np
    >>> position = ShawRelative(max_distance=1, initializer="ones")
    >>> position.build((1, 2, 1, 4), (1, 2, 1, 3))
    >>> query, places = np.ones((1, 2, 1, 4), "float32"), np.arange(2)
    >>> np.array(position.bias(query, places, places)).tolist()
    [[[[2.0, 2.0], [2.0, 2.0]]]]

    Reference: Shaw et al., Self-Attention with Relative Position Representations, arXiv 1803.02155, equations 3 to 5.
    """

    def __init__(
        self,
        max_distance: int = 16,
        use_values: bool = True,
        scale: float | None = None,
        initializer: Initializer = "glorot_uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if max_distance < 1:
            raise ValueError(f"max_distance must be at least 1. Received: {max_distance}")
        self.max_distance = max_distance
        self.use_values = use_values
        self.scale = scale
        self.initializer = keras.initializers.get(initializer)
        self.needs = frozenset({"bias", "query", "values"} if use_values else {"bias", "query"})

    def build(self, query_shape: Shape, value_shape: Shape) -> None:
        self.key_embeddings = self._table("key_embeddings", query_shape[-1])
        if self.use_values:
            self.value_embeddings = self._table("value_embeddings", value_shape[-1])

    def _table(self, name, width):
        initializer = keras.initializers.get(self.initializer)
        return self.add_weight(name=name, shape=(2 * self.max_distance + 1, width), initializer=initializer)

    def bias(self, query: Tensor, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        scale = 1.0 / math.sqrt(query.shape[-1]) if self.scale is None else self.scale
        table = ops.cast(ops.transpose(self.key_embeddings), query.dtype)
        by_distance = shared_matmul(ops.transpose(query, (0, 2, 1, 3)) * ops.cast(scale, query.dtype), table)
        # A gather from a flat tensor, whose gradient is one flat scatter.
        places = self._places(by_distance, query_positions, key_positions)
        return ops.take(ops.reshape(ops.cast(by_distance, "float32"), (-1,)), places, axis=0)

    def values(self, weights: Tensor, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        if not self.use_values:
            return None
        reach = 2 * self.max_distance + 1
        heads, length = weights.shape[1], ops.shape(weights)[2]
        places = self._places(weights, query_positions, key_positions)
        empty = ops.zeros((ops.shape(weights)[0] * heads * length * reach,), dtype="float32")
        flat = ops.reshape(ops.cast(weights, "float32"), (-1,))
        sums = ops.scatter_update(empty, ops.reshape(places, (-1, 1)), flat, reduction="add")
        sums = ops.cast(ops.reshape(sums, (-1, heads, length, reach)), weights.dtype)
        context = shared_matmul(sums, ops.cast(self.value_embeddings, weights.dtype))
        return ops.transpose(context, (0, 2, 1, 3))

    def _places(self, by_query, query_positions, key_positions):
        """Where the distance of each pair stands in a flat `(B, N, T, 2 max_distance + 1)`: int32 `(B, N, T, S)`."""
        reach = self.max_distance
        batch, heads, length = ops.shape(by_query)[0], by_query.shape[1], ops.shape(by_query)[2]
        starts = ops.arange(batch * heads * length, dtype="int32") * (2 * reach + 1) + reach
        places = ops.clip(distances(query_positions, key_positions), -reach, reach)
        return ops.reshape(starts, (-1, heads, length, 1)) + ops.expand_dims(places, 1)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "max_distance": self.max_distance,
            "use_values": self.use_values,
            "scale": self.scale,
            "initializer": keras.initializers.serialize(self.initializer),
        }
