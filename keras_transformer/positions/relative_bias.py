"""Relative position biases, learned for buckets of distances."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_transformer.positions.attention_position import AttentionPosition
from keras_transformer.positions.distances import distances
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, Initializer, Shape, Tensor


@serializable
class RelativeBias(AttentionPosition):
    """Adds a learned number to each score, by head and by bucket of the distance: `bias_nij = b[bucket(j - i), n]`.

    Half of the buckets of a side hold one distance each, the others reach exponentially farther, and the last one holds all
    from `max_distance` on. T5 does not scale its scores: use it with `SoftmaxAttention(scoring="dot")` for that.

    One instance may serve several layers, which then share the biases, as in T5; so do the blocks of a model that is given
    it as `position`. In an attention that is a template for blocks, each has its own.

    Args:
        num_buckets: even int >= 4, or any int >= 2 if not bidirectional. Default 32.
        max_distance: int, above the number of buckets that hold one distance. Default 128.
        bidirectional: bool. Whether keys on the right have buckets of their own, half of them, as in encoders. In decoders,
            False: all buckets are for the past, and a key ahead counts as distance 0.
        initializer: of the biases `(num_buckets, N)`. Default: normal with standard deviation 0.02.

    Returns:
        A bias, float32 `(1 | B, N, T, S)`.

    Raises:
        ValueError: too few or odd buckets; a `max_distance` too near; in a mechanism that takes no bias.

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
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_buckets = num_buckets
        self.max_distance = max_distance
        self.bidirectional = bidirectional
        self.initializer = keras.initializers.get(initializer or keras.initializers.RandomNormal(stddev=0.02))
        self._buckets = relative_buckets(num_buckets, max_distance, bidirectional)

    def build(self, query_shape: Shape, *shapes: Any) -> None:
        self.embeddings = self.add_weight(
            name="embeddings",
            shape=(self.num_buckets, query_shape[2]),
            initializer=self.initializer,
            autocast=False,
        )

    def bias(self, query: Tensor, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        reach = self.max_distance
        # By distance first: a small table, and one gather of numbers that leaves heads ahead of positions.
        by_distance = ops.transpose(ops.take(self.embeddings, self._buckets, axis=0))  # (N, 2 reach + 1)
        places = ops.clip(distances(query_positions, key_positions), -reach, reach) + reach
        bias = ops.take(by_distance, places, axis=1)  # (N, 1 | B, T, S)
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
    """The bucket of each distance `-max_distance .. max_distance`, key minus query, as an int32 array.

    A table, and not a logarithm in the graph: at the edges of buckets, runtimes would round it apart.

    Args:
        num_buckets: int.
        max_distance: int: those farther are in the bucket of this one.
        bidirectional: bool.

    Raises:
        ValueError: too few or odd buckets; a `max_distance` too near.

    Example:

    >>> relative_buckets(8, 6).tolist()
    [3, 3, 3, 2, 2, 1, 0, 5, 6, 6, 7, 7, 7]
    """
    side = num_buckets // 2 if bidirectional else num_buckets
    if side < 2 or (bidirectional and num_buckets % 2):
        raise ValueError(f"num_buckets must be even and at least 4, or, in one direction, 2. Received: {num_buckets}")
    single = side // 2
    if max_distance <= single:
        raise ValueError(f"max_distance must be above {single}, the last single bucket. Received: {max_distance}")
    distance = np.arange(max_distance + 1)
    growth = np.log(np.maximum(distance, single) / single) / np.log(max_distance / single)
    # A whole number must not fall short of itself.
    far = single + np.floor(growth * (side - single) + 1e-9).astype(int)
    past = np.where(distance < single, distance, np.minimum(far, side - 1))
    ahead = past + side if bidirectional else np.zeros_like(past)
    return np.concatenate([past[::-1], ahead[1:]]).astype("int32")
