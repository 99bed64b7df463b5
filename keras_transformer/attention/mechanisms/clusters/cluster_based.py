"""Base class of clustered attention."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

import keras
from keras import ops

from keras_transformer.attention.arguments import positive
from keras_transformer.attention.masks import Visibility
from keras_transformer.attention.mechanism import Mechanism
from keras_transformer.attention.mechanisms.softmax import SoftmaxAttention
from keras_transformer.attention.partition.clusters import cluster_bits, hash_bits
from keras_transformer.utils.types import Config, LayerOptions, Shape, Tensor

if TYPE_CHECKING:
    from keras_transformer.positions import AttentionPosition


class ClusterBasedMechanism(Mechanism):
    """Base class of clustered attention: the arguments and the clustering of queries."""

    supports = frozenset({"bidirectional", "cross"})

    def __init__(
        self,
        num_clusters: int = 100,
        bits: int = 32,
        iterations: int = 10,
        dropout: float = 0.0,
        seed: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.num_clusters = positive("num_clusters", num_clusters)
        self.bits = positive("bits", bits)
        self.iterations = iterations
        self.dropout = dropout
        self.seed = seed
        self.softmax = SoftmaxAttention("scaled_dot", dropout, seed=seed, dtype=self.dtype_policy)

    def build(self, query_shape: Shape, key_shape: Shape, value_shape: Shape) -> None:
        self.softmax.build(query_shape, key_shape, value_shape)
        self.hash_planes = self.add_weight(
            name="hash_planes",
            shape=(self.bits, query_shape[3] + 1),
            initializer=keras.initializers.RandomNormal(stddev=1.0, seed=self.seed),
            trainable=False,
            autocast=False,
        )

    def clusters(self, query: Tensor, query_mask: Tensor | None = None) -> Tensor:
        """Returns the cluster of each query `(B, T, N, H)`: int `(B, N, T)`, `num_clusters` for padding."""
        heads, length = query.shape[2], ops.shape(query)[1]
        seen = ops.ones((ops.shape(query)[0], length), dtype="bool") if query_mask is None else query_mask
        seen = ops.repeat(ops.cast(seen, "float32"), heads, axis=0)
        bits = hash_bits(query, self.hash_planes)
        clusters = cluster_bits(bits, seen, self.num_clusters, self.iterations)
        return ops.reshape(clusters, (-1, heads, length))

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        visibility: Visibility,
        position: AttentionPosition | None = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
    ) -> Tensor:
        clusters = self.clusters(query, visibility.query_mask)
        context = self.attend_clusters(query, key, value, clusters, visibility.key_mask, training)
        if visibility.query_mask is None:
            return context
        return context * ops.cast(ops.expand_dims(ops.expand_dims(visibility.query_mask, 2), 3), context.dtype)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_clusters": self.num_clusters,
            "bits": self.bits,
            "iterations": self.iterations,
            "dropout": self.dropout,
            "seed": self.seed,
        }
