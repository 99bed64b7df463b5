"""Relative position representations of Shaw et al."""

from __future__ import annotations

import math
from typing import Unpack

import keras
from keras import ops

from keras_transformer.backend.kernels.shared_matmul import shared_matmul
from keras_transformer.positions.attention_position import AttentionPosition
from keras_transformer.positions.relative.distances import distances
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, Initializer, LayerOptions, Shape, Tensor


@serializable
class ShawRelative(AttentionPosition):
    """Relative position representations: `q_i · (k_j + a^K_d) scale`, `Σ_j w_ij (v_j + a^V_d)`, with learned vectors a_d.

    `d = clip(j - i, -max_distance, max_distance)`, and all heads share the vectors; or, with `clips=False`, `d = j - i`, and
    keys farther away have no vector. There is no tensor of vectors for
    pairs: products of queries and vectors are computed once per distance, `(T, 2 max_distance + 1)`, and gathered for
    pairs; weights are summed by distance before they are multiplied with the vectors. Time and memory in addition to
    attention grow with `T · S` and `T · max_distance · H`.

    Args:
        max_distance: int >= 1. The longest distance with a vector of its own. Defaults to 16.
        use_values: bool. Whether vectors are also added to values.
        scale: float, the scale of the scoring function. None for `1 / √H`.
        initializer: initializer of the vectors, `(2 max_distance + 1, H)` and `(2 max_distance + 1, H_value)`.
        clips: bool. Whether keys farther away than `max_distance` share the vector of this distance, as in the paper; if
            False they have none, as in the text encoder of VITS. Defaults to True.

    Returns:
        A bias, float32 `(B, N, T, S)`, and a term of the context, `(B, T, N, H_value)`.

    Raises:
        ValueError: `max_distance` below 1; a mechanism that does not support a bias, or a term of the context.

    Example:

    >>> import numpy as np
    >>> position = ShawRelative(max_distance=1, initializer="ones")
    >>> position.build((1, 2, 1, 4), (1, 2, 1, 3))
    >>> query, positions = np.ones((1, 2, 1, 4), "float32"), np.arange(2)
    >>> np.array(position.bias(query, positions, positions)).tolist()
    [[[[2.0, 2.0], [2.0, 2.0]]]]

    Reference: Shaw et al., Self-Attention with Relative Position Representations, arXiv 1803.02155, equations 3 to 5.
    Without clipping: Kim et al., VITS, arXiv 2106.06103, in its code.
    """

    def __init__(
        self,
        max_distance: int = 16,
        use_values: bool = True,
        scale: float | None = None,
        initializer: Initializer = "glorot_uniform",
        clips: bool = True,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        if max_distance < 1:
            raise ValueError(f"max_distance must be at least 1. Received: {max_distance}")
        self.max_distance = max_distance
        self.use_values = use_values
        self.scale = scale
        self.initializer = keras.initializers.get(initializer)
        self.clips = clips
        # The outermost rows: of the vectors that farther keys share, or beyond them of zeros.
        self._reach = max_distance if clips else max_distance + 1
        self.needs = frozenset({"bias", "query", "values"} if use_values else {"bias", "query"})

    def build(self, query_shape: Shape, value_shape: Shape | None = None, *shapes: Shape) -> None:
        self.key_embeddings = self._table("key_embeddings", query_shape[-1])
        if self.use_values:
            self.value_embeddings = self._table("value_embeddings", (value_shape or query_shape)[-1])

    def _table(self, name, width):
        initializer = keras.initializers.get(self.initializer)
        return self.add_weight(name=name, shape=(2 * self.max_distance + 1, width), initializer=initializer)

    def bias(self, query: Tensor, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        scale = 1.0 / math.sqrt(query.shape[-1]) if self.scale is None else self.scale
        table = ops.transpose(self._rows(self.key_embeddings, query.dtype))
        by_distance = shared_matmul(ops.transpose(query, (0, 2, 1, 3)) * ops.cast(scale, query.dtype), table)
        # A gather from a flat tensor, whose gradient is one flat scatter.
        indices = self._indices(by_distance, query_positions, key_positions)
        return ops.take(ops.reshape(ops.cast(by_distance, "float32"), (-1,)), indices, axis=0)

    def values(self, weights: Tensor, query_positions: Tensor, key_positions: Tensor) -> Tensor | None:
        if not self.use_values:
            return None
        size = 2 * self._reach + 1
        heads, length = weights.shape[1], ops.shape(weights)[2]
        indices = self._indices(weights, query_positions, key_positions)
        empty = ops.zeros((ops.shape(weights)[0] * heads * length * size,), dtype="float32")
        flat = ops.reshape(ops.cast(weights, "float32"), (-1,))
        sums = ops.scatter_update(empty, ops.reshape(indices, (-1, 1)), flat, reduction="add")
        sums = ops.cast(ops.reshape(sums, (-1, heads, length, size)), weights.dtype)
        context = shared_matmul(sums, self._rows(self.value_embeddings, weights.dtype))
        return ops.transpose(context, (0, 2, 1, 3))

    def _rows(self, embeddings, dtype):
        """Returns the vectors, `(2 reach + 1, H)`, with zeros around those that are learned if nothing is clipped."""
        margin = self._reach - self.max_distance
        embeddings = ops.cast(embeddings, dtype)
        return ops.pad(embeddings, ((margin, margin), (0, 0))) if margin else embeddings

    def _indices(self, by_query, query_positions, key_positions):
        """Returns the index of the distance of each pair in a flat `(B, N, T, 2 reach + 1)`: int32 `(B, N, T, S)`."""
        reach = self._reach
        batch, heads, length = ops.shape(by_query)[0], by_query.shape[1], ops.shape(by_query)[2]
        starts = ops.arange(batch * heads * length, dtype="int32") * (2 * reach + 1) + reach
        indices = ops.clip(distances(query_positions, key_positions), -reach, reach)
        return ops.reshape(starts, (-1, heads, length, 1)) + ops.expand_dims(indices, 1)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "max_distance": self.max_distance,
            "use_values": self.use_values,
            "scale": self.scale,
            "initializer": keras.initializers.serialize(self.initializer),
            "clips": self.clips,
        }
