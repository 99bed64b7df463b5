"""Relative position biases of T5, learned for buckets of distances."""

from __future__ import annotations

from typing import Unpack

import keras
import numpy as np
from keras import ops

from keras_transformer.positions.attention_position import AttentionPosition
from keras_transformer.positions.relative.distances import distances
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, Initializer, LayerOptions, Shape, Tensor


@serializable
class RelativeBias(AttentionPosition):
    """Relative position bias of T5: `bias_nij = b[bucket(j - i), n]`, a learned scalar for each head and distance bucket.

    Half of the buckets of each side have one distance each; the ranges of the others grow exponentially, up to
    `max_distance`. T5 does not scale its scores: use `SoftmaxAttention(scoring="dot")` for that.

    Layers with the same instance share the biases, as in T5. So do the blocks of a model with this `position`. In an
    attention that is a template for blocks, each block has its own.

    Args:
        num_buckets: even int >= 4, or any int >= 2 if not bidirectional. Defaults to 32.
        max_distance: int, above the number of buckets with one distance. Defaults to 128.
        bidirectional: bool. Whether half of the buckets are for later keys, as in encoders. False for decoders: all buckets
            are for the past, and later keys have distance 0.
        initializer: initializer of the biases, `(num_buckets, N)`. Defaults to normal with standard deviation 0.02.

    Returns:
        A bias, float32 `(1 | B, N, T, S)`.

    Raises:
        ValueError: too few or odd buckets; a `max_distance` that is too small; a mechanism that does not support a bias.

    Example:

    >>> import numpy as np
    >>> position = RelativeBias(num_buckets=4, max_distance=4, initializer="ones")
    >>> position.build((1, 2, 3, 8))
    >>> np.array(position.bias(np.zeros((1, 2, 3, 8)), np.arange(2), np.arange(2))).shape
    (1, 3, 2, 2)

    Reference: Raffel et al., T5, arXiv 1910.10683, section 2.1; buckets as in the authors' code.
    """

    needs = frozenset({"bias"})
    is_shared = True

    def __init__(
        self,
        num_buckets: int = 32,
        max_distance: int = 128,
        bidirectional: bool = True,
        initializer: Initializer = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.num_buckets = num_buckets
        self.max_distance = max_distance
        self.bidirectional = bidirectional
        self.initializer = keras.initializers.get(initializer or keras.initializers.RandomNormal(stddev=0.02))
        self._buckets = relative_buckets(num_buckets, max_distance, bidirectional)

    def build(self, query_shape: Shape, *shapes: Shape) -> None:
        self.embeddings = self.add_weight(
            name="embeddings",
            shape=(self.num_buckets, query_shape[2]),
            initializer=self.initializer,
            autocast=False,
        )

    def bias(self, query: Tensor, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        reach = self.max_distance
        # First a small table by distance, then one gather, which keeps heads before positions.
        by_distance = ops.transpose(ops.take(self.embeddings, self._buckets, axis=0))  # (N, 2 reach + 1)
        indices = ops.clip(distances(query_positions, key_positions), -reach, reach) + reach
        bias = ops.take(by_distance, indices, axis=1)  # (N, 1 | B, T, S)
        return ops.transpose(bias, (1, 0, 2, 3))

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_buckets": self.num_buckets,
            "max_distance": self.max_distance,
            "bidirectional": self.bidirectional,
            "initializer": keras.initializers.serialize(self.initializer),
        }


def relative_buckets(num_buckets: int, max_distance: int, bidirectional: bool = True) -> np.ndarray:
    """Returns the bucket of each distance `-max_distance .. max_distance`, key minus query, as an int32 array.

    A table rather than a logarithm in the graph, which runtimes round differently at the edges of buckets.

    Args:
        num_buckets: int.
        max_distance: int. Larger distances are in the bucket of this one.
        bidirectional: bool.

    Raises:
        ValueError: too few or odd buckets; a `max_distance` that is too small.

    Example:

    >>> relative_buckets(8, 6).tolist()
    [3, 3, 3, 2, 2, 1, 0, 5, 6, 6, 7, 7, 7]
    """
    side = num_buckets // 2 if bidirectional else num_buckets
    if side < 2 or (bidirectional and num_buckets % 2):
        raise ValueError(
            f"num_buckets must be even and at least 4, or at least 2 if not bidirectional. Received: {num_buckets}"
        )
    single = side // 2
    if max_distance <= single:
        raise ValueError(
            f"max_distance must be above {single}, the number of buckets with one distance. Received: {max_distance}"
        )
    distance = np.arange(max_distance + 1)
    growth = np.log(np.maximum(distance, single) / single) / np.log(max_distance / single)
    # The margin keeps exact integers from being rounded down.
    far = single + np.floor(growth * (side - single) + 1e-9).astype(int)
    past = np.where(distance < single, distance, np.minimum(far, side - 1))
    future = past + side if bidirectional else np.zeros_like(past)
    return np.concatenate([past[::-1], future[1:]]).astype("int32")
